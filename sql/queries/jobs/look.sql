-- Do all that claim.sql does, and look for lanes that the worker does not know, and for when the next jobs fall due.
--
-- The two are apart because what only this one does takes a quarter of a claim's time. All up to `claimed` is the same.
--
-- Params:  ids, tokens, queues, slots, lane_queues, lane_priorities, lane_times, lane_ids, free, tasks, here, worker,
--          token: as claim.sql
--          asked_later (of each queue, whether to say when its next job is due)
--          gap_queues, gap_tops, gap_bottoms: priorities between which lanes are looked for that the worker does not know
-- Returns: rows (kind, …), see the end
-- Locks, index, races: as claim.sql
with given as (
    select * from unnest(%(ids)s::text::bigint[], %(tokens)s::text::bigint[]) as given (id, token)
),
held as materialized (
    select j.ctid
    from given
    join asyncq.jobs j on j.id = given.id and j.lease_token = given.token
    for update of j skip locked
),
retired as (
    delete from asyncq.jobs j
    where j.ctid = any(array(select held.ctid from held))
    returning j.id, j.lease_token
),
wanted as materialized (
    select *
    from unnest(
        %(queues)s::text::text[], %(slots)s::text::integer[], %(asked_later)s::text::boolean[]
    ) with ordinality as wanted (queue, slots, asked_later, place)
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
        2::smallint as kind, j.id, j.queue::text as queue, j.task::text as task, j.args::text as args, j.priority,
        j.attempts, j.max_attempts, j.lease_seconds, j.run_at, j.created_at, null::bigint as token
),
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
    from wanted
    join lane on lane.queue = wanted.place
    cross join lateral (
        select j.run_at
        from asyncq.jobs j
        where j.state = 'available' and j.queue = wanted.queue and j.priority = lane.priority and j.run_at > now()
        order by j.run_at
        limit 1
    ) next
    where wanted.asked_later
    group by wanted.queue
)
-- 2: a job taken, by priority, run_at and id.
(
    select
        claimed.kind, claimed.id, claimed.queue, claimed.task, claimed.args, claimed.priority, claimed.attempts,
        claimed.max_attempts, claimed.lease_seconds, claimed.run_at, claimed.created_at, claimed.token
    from claimed
    order by claimed.priority desc, claimed.run_at, claimed.id
)
union all
-- 3: an outcome not written, with its token and, as attempts, whether the row is merely busy (1) or the lease lost (0).
select
    3::smallint, given.id, null, null, null, null,
    coalesce((select 1 from asyncq.jobs j where j.id = given.id and j.lease_token = given.token), 0),
    null, null, null, null, given.token
from given
where (select count(*) from retired) < (select count(*) from given)
    -- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
    and (given.id, given.token) not in (select retired.id, retired.lease_token from retired)
union all
-- 4: a lane that has rows, with its first one of a known task, if there is one.
select 4::smallint, opened.id, opened.queue, null, null, opened.priority, null, null, null, opened.run_at, null, null
from opened
union all
-- 5: when the next job of a queue falls due, in seconds, as lease_seconds.
select
    5::smallint, null, later.queue, null, null, null, null, null,
    extract(epoch from least(later.run_at, '9999-12-29 00:00+00') - now())::float8, null, null, null
from later
union all
-- 1: when this was looked, as run_at, and how long it took so far, in seconds, as lease_seconds. Always there, last.
select
    1::smallint, null, null, null, null, null, null, null,
    extract(epoch from clock_timestamp() - now())::float8, now(), null, null
