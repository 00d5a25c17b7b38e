-- Take due jobs of known tasks for one worker, the highest priority first, then the earliest; retire what it finished.
--
-- A lane is one queue and priority. A worker knows the lanes in use and reads each from a position on: behind it are
-- rows that were taken before, rows of other workers' tasks, and index entries of rows that are gone but that an old
-- snapshot somewhere still needs. Without positions, each claim would walk over all of them. Which positions are
-- right, and how rows that appear behind them are found, is told in `asyncq.worker.lanes`.
--
-- Params:  ids, tokens (pairwise: successful runs, to be deleted as in complete.sql)
--          queues, slots (of each queue, in the order of serving)
--          lane_queues (places in queues), lane_priorities, lane_times, lane_ids (the position), highest lanes first
--          free (of all queues together), tasks (known names), here (ids whose earlier run is still ending in this
--          worker), worker, token (random, this claim's own)
-- Returns: rows (kind, …), see the end; look.sql gives more kinds
-- Locks:   the rows it takes, with SKIP LOCKED: claims never wait for each other, nor for a caller's transaction
-- Index:   jobs_claim, and the primary key for what is retired. Each queue and priority by equality: an array would
--          sort the backlog, and behind "priority desc" alone "run_at <= now()" would walk the future rows of every
--          higher priority. Lanes are read only as far as rows are still wanted.
-- Races:   a row changed since the snapshot is locked in its new version, whose ctid this snapshot cannot see: it is
--          neither taken nor retired, and stays for the next look.
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
        2::smallint as kind, j.id, j.queue::text as queue, j.task::text as task, j.args::text as args, j.priority,
        j.attempts, j.max_attempts, j.lease_seconds, j.run_at, j.created_at, null::bigint as token
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
-- 1: when this was looked, as run_at, and how long it took so far, in seconds, as lease_seconds. Always there, last.
select
    1::smallint, null, null, null, null, null, null, null,
    extract(epoch from clock_timestamp() - now())::float8, now(), null, null
