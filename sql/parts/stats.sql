-- The jobs of queues, counted by where they stand: queues (null: all that have jobs), most. See jobs/stats.sql.
with recursive waiting (queue) as (
    (
        select j.queue
        from asyncq.jobs j
        where %(queues)s::text::text[] is null and j.state = 'available' and j.queue > ''
        order by j.queue
        limit 1
    )
    union all
    select following.queue
    from waiting
    cross join lateral (
        select j.queue
        from asyncq.jobs j
        where j.state = 'available' and j.queue > waiting.queue
        order by j.queue
        limit 1
    ) following
),
ended (queue) as (
    (
        select j.queue
        from asyncq.jobs j
        where %(queues)s::text::text[] is null and j.finished_at is not null and j.queue > ''
        order by j.queue
        limit 1
    )
    union all
    select following.queue
    from ended
    cross join lateral (
        select j.queue
        from asyncq.jobs j
        where j.finished_at is not null and j.queue > ended.queue
        order by j.queue
        limit 1
    ) following
),
running as materialized (
    select latest.queue, count(*) as jobs
    from (
        select j.queue
        from asyncq.jobs j
        where j.state = 'running' and j.attempted_at >= '-infinity'
        order by j.attempted_at desc
        limit (select %(most)s::integer)
    ) latest
    group by latest.queue
),
named (queue) as (
    select unnest(%(queues)s::text::text[])
    union
    select waiting.queue from waiting
    union
    select ended.queue from ended
    union
    select running.queue from running where %(queues)s::text::text[] is null
)
select
    named.queue, due.jobs, due.seconds, scheduled.jobs, coalesce(running.jobs, 0), over.discarded, over.cancelled
from named
cross join lateral (
    with recursive lane (priority) as (
        (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = named.queue
            order by j.priority desc
            limit 1
        )
        union all
        select lower.priority
        from lane
        cross join lateral (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = named.queue and j.priority < lane.priority
            order by j.priority desc
            limit 1
        ) lower
    )
    select array_agg(lane.priority) as priorities from lane
) lanes
cross join lateral (
    select
        count(*) as jobs,
        extract(epoch from now() - min(greatest(ready.run_at, '0001-01-03 00:00+00')))::float8 as seconds
    from (
        select first.run_at
        from unnest(lanes.priorities) as lane (priority)
        cross join lateral (
            select j.run_at
            from asyncq.jobs j
            where j.state = 'available' and j.queue = named.queue and j.priority = lane.priority and j.run_at <= now()
            order by j.run_at, j.id
            limit (select %(most)s::integer)
        ) first
        limit (select %(most)s::integer)
    ) ready
) due
cross join lateral (
    select count(*) as jobs
    from (
        select 1
        from unnest(lanes.priorities) as lane (priority)
        cross join lateral (
            select 1
            from asyncq.jobs j
            where j.state = 'available' and j.queue = named.queue and j.priority = lane.priority and j.run_at > now()
            order by j.run_at, j.id
            limit (select %(most)s::integer)
        ) first
        limit (select %(most)s::integer)
    ) later
) scheduled
cross join lateral (
    select
        count(*) filter (where latest.state = 'discarded') as discarded,
        count(*) filter (where latest.state = 'cancelled') as cancelled
    from (
        select j.state
        from asyncq.jobs j
        where j.finished_at is not null and j.queue = named.queue
        order by j.finished_at desc, j.id desc
        limit (select %(most)s::integer)
    ) latest
) over
left join running on running.queue = named.queue
order by named.queue
