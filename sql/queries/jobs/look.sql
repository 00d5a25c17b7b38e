-- Do all that claim.sql does, and look for lanes that the worker does not know, and for when the next jobs fall due.
--
-- The two are apart because what only this one does takes a quarter of a claim's time.
--
-- Params:  ids, tokens, queues, slots, lane_queues, lane_priorities, lane_times, lane_ids, free, tasks, here, worker,
--          token: as claim.sql
--          asked_later (of each queue, whether to say when its next job is due)
--          gap_queues, gap_tops, gap_bottoms: priorities between which lanes are looked for that the worker does not know
-- Returns: rows (kind, …), see the end and claim.sql
-- Locks, index, races: as claim.sql
with
-- include retired,
-- include claimed,
opened as (
    select level.queue, level.priority, first.run_at, first.id
    from unnest(
        %(gap_queues)s::text::integer[], %(gap_tops)s::text::integer[], %(gap_bottoms)s::text::integer[]
    ) as gap (queue, top, bottom)
    join wanted on wanted.place = gap.queue
    cross join lateral (
        with recursive level (queue, priority) as (
            (
                select wanted.queue, j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = wanted.queue
                    and j.priority < gap.top and j.priority > gap.bottom
                order by j.priority desc
                limit 1
            )
            union all
            select level.queue, lower.priority
            from level
            cross join lateral (
                select j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = level.queue
                    and j.priority < level.priority and j.priority > gap.bottom
                order by j.priority desc
                limit 1
            ) lower
        )
        select level.queue, level.priority from level
    ) level
    left join lateral (
        select j.run_at, j.id
        from asyncq.jobs j
        where j.state = 'available' and j.queue = level.queue and j.priority = level.priority
            and j.task = any(%(tasks)s::text::text[])
        order by j.run_at, j.id
        limit 1
    ) first on true
),
later as (
    select wanted.queue, min(next.run_at) as run_at
    from unnest(%(asked_later)s::text::boolean[]) with ordinality as asked (later, place)
    join wanted on wanted.place = asked.place
    join lane on lane.queue = wanted.place
    cross join lateral (
        select j.run_at
        from asyncq.jobs j
        where j.state = 'available' and j.queue = wanted.queue and j.priority = lane.priority and j.run_at > now()
        order by j.run_at
        limit 1
    ) next
    where asked.later
    group by wanted.queue
)
-- 4: a lane that has rows, with its first one of a known task, if there is one.
select
    4::smallint as kind, opened.id, opened.queue, null::text as task, null::text as args, opened.priority,
    null::integer as attempts, null::integer as max_attempts, null::float8 as lease_seconds, opened.run_at,
    null::timestamptz as created_at, null::text as headers, null::bigint as token
from opened
union all
-- 5: when the next job of a queue falls due, in seconds, as lease_seconds.
select
    5::smallint, null, later.queue, null, null, null, null, null,
    extract(epoch from least(later.run_at, '9999-12-29 00:00+00') - now())::float8, null, null, null, null
from later
union all
-- include answer
