-- Take due jobs from positions in lanes: queues, slots, lane_…, free, tasks, here, worker, token.
wanted as materialized (
    select *
    from unnest(%(queues)s::text::text[], %(slots)s::text::integer[]) with ordinality as wanted (queue, slots, place)
),
lane as materialized (
    select *
    from unnest(
        %(lane_queues)s::text::integer[], %(lane_priorities)s::text::smallint[],
        %(lane_times)s::text::timestamptz[], %(lane_ids)s::text::bigint[]
    ) as lane (queue, priority, run_at, id)
),
candidate as materialized (
    select found.ctid
    from wanted
    cross join lateral (
        select due.ctid
        from lane
        cross join lateral (
            select j.ctid
            from asyncq.jobs j
            where j.state = 'available' and j.queue = wanted.queue and j.priority = lane.priority
                and j.run_at <= now() and (j.run_at, j.id) > (lane.run_at, lane.id)
                and j.task = any(%(tasks)s::text::text[]) and j.id <> all(%(here)s::text::bigint[])
            order by j.run_at, j.id
            limit wanted.slots
            for update skip locked
        ) due
        where lane.queue = wanted.place
        limit wanted.slots
    ) found
    limit %(free)s::integer
),
claimed as (
    update asyncq.jobs j
    set state = 'running',
        attempts = least(j.attempts, 2147483646) + 1,
        locked_by = %(worker)s::text,
        lease_token = %(token)s::bigint,
        leased_until = now() + make_interval(secs => j.lease_seconds),
        attempted_at = clock_timestamp()
    where j.ctid = any(array(select candidate.ctid from candidate))
    returning
        2::smallint as kind, j.id, j.queue::text as queue, j.task::text as task,
        -- Large ones are read apart: see args.sql.
        case when pg_column_size(j.args) <= 65536 then j.args::text else '' end as args, j.priority,
        j.attempts, j.max_attempts, j.lease_seconds, j.run_at, j.created_at,
        -- Whoever put more there meant something else.
        case when pg_column_size(j.headers) <= 4096 then j.headers::text end as headers,
        null::bigint as token
)
