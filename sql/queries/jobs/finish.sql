-- Write the outcomes of runs that did not succeed: put each row into its next state. (Successes: complete.sql.)
--
-- Params:  ids, tokens (pairwise: the claim under which each ran), states (available, cancelled or discarded), delays
--          (seconds from now to the next run; null keeps run_at), refunds (attempts given back), errors (null keeps
--          last_error)
-- Returns: rows (id, token, busy) of those not written: busy, somebody's open transaction holds the row, try again;
--          otherwise lost, the run was taken away and its outcome counts for nothing. Rows of nulls are notifications.
-- Note:    what happens to jobs of queues that keep history is recorded.
-- Locks:   the rows, with SKIP LOCKED: one held row does not hold up the batch
-- Index:   primary key, in the way of parts/held.sql. The state is not asked for: it would invite the planner to walk the whole
--          running index.
-- Races:   after a heartbeat between snapshot and lock the row is locked in its new version, whose ctid this snapshot
--          cannot see: it is reported busy, and written by the next try. Written is only what the update returned.
with given as (
    select *
    from unnest(
        %(ids)s::bigint[], %(tokens)s::bigint[], %(states)s::text[], %(delays)s::float8[], %(refunds)s::integer[],
        %(errors)s::text[]
    ) as given (id, token, state, delay, refund, error)
),
held as materialized (
    select
        held.ctid, given.token, given.state, given.delay, given.refund, given.error,
        held.attempts, held.run_at, held.attempted_at, held.locked_by
    from given
    cross join lateral (
        select j.ctid, j.attempts, j.run_at, j.attempted_at, j.locked_by
        from asyncq.jobs j
        where j.id = given.id and j.lease_token = given.token
        for update skip locked
    ) held
),
changed as (
    update asyncq.jobs j
    set state = held.state,
        run_at = coalesce(clock_timestamp() + make_interval(secs => held.delay), j.run_at),
        attempts = greatest(j.attempts - held.refund, 0),
        locked_by = null,
        leased_until = null,
        lease_token = null,
        last_error = coalesce(held.error, j.last_error),
        finished_at = case when held.state <> 'available' then now() end
    from held
    where j.ctid = held.ctid
    returning
        j.id, held.token as lease_token, j.queue, j.task, j.created_at, held.state, held.delay, held.refund, held.error,
        held.attempts, held.run_at, held.attempted_at, held.locked_by, held.delay is null as back
),
-- include kept,
recorded as (
    insert into asyncq.job_history (
        job_id, created_at, run_at, started_at, expires_on, attempt, event, queue, task, worker, error
    )
    select
        changed.id, changed.created_at, changed.run_at, changed.attempted_at,
        (now() at time zone 'UTC' + kept.history)::date, changed.attempts,
        case
            when changed.state <> 'available' then changed.state
            when changed.refund = 0 then 'failed'
            when changed.delay is null then 'interrupted'
            else 'snoozed'
        end,
        changed.queue, changed.task, changed.locked_by, changed.error
    from changed
    join kept on kept.name = changed.queue
),
notified as (
    -- Those that keep their place in the line are announced as such.
    select pg_notify(btrim('asyncq.', '".'), case when waiting.back then chr(1) else '' end || waiting.queue)
    from (select distinct changed.queue, changed.back from changed where changed.state = 'available') waiting
)
select
    given.id, given.token,
    -- Not "exists", which may be answered from a hash of the whole table.
    coalesce((select true from asyncq.jobs j where j.id = given.id and j.lease_token = given.token), false)
from given
-- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
where (given.id, given.token) not in (select changed.id, changed.lease_token from changed)
union all
select null, null, null from notified
