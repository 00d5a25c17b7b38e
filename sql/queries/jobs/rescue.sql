-- Take back jobs whose lease ran out: their worker died, hung, or lost its network.
--
-- Params:  batch, since (nothing that was claimed before is running), awaited (transactions, as an earlier call gave
--          them), not_after (when it comes later than this it rescues nothing)
-- Returns: rows (late, mine, id, queue, task, state, attempts, locked_by, next_seconds, looked_at, writers, over, first,
--          answered_at): what was rescued, and in how many seconds the next lease ends (negative: it did, and could not
--          be taken; null: nothing is running); one row with a null id when there was nothing. late: it was held up on
--          its way. mine is false then, and when another worker is at it. Of the next `since`: see horizon.sql, and
--          when the first of what is running was claimed. answered_at is the time at the end.
-- Locks:   a transaction-level advisory lock, one rescuer at a time; then the rows, with SKIP LOCKED
-- Index:   jobs_running, from `since` on: behind it are entries of finished runs that an old snapshot may still need
-- Races:   a finish, a heartbeat or a fresh claim since the snapshot changes the row: its conditions are looked at
--          again under the lock, so what was finished or extended stays as it is.
with
-- include writers,
arrival as materialized (
    -- Not when this statement itself was held up, by a lock on the table, by a server that stood still or in a pooler
    -- that waits for one: so were the heartbeats of workers that live, and they go first.
    select clock_timestamp() >= least(now() + interval '1 second', %(not_after)s::text::timestamptz) as late
),
turn as materialized (
    select
        arrival.late,
        not arrival.late
            and pg_try_advisory_xact_lock(hashtext('asyncq.rescue'), hashtext(current_database())) as mine
    from arrival
),
-- Read once: what an old snapshot keeps of runs that have ended since is walked along.
running as materialized (
    select j.ctid, j.id, j.leased_until, j.attempted_at
    from asyncq.jobs j
    where j.state = 'running' and j.attempted_at >= %(since)s::text::timestamptz
),
expired as materialized (
    select j.ctid, j.id, j.locked_by, j.attempted_at
    from asyncq.jobs j
    where (select turn.mine from turn)
        and j.ctid = any(array(select running.ctid from running where running.leased_until < now()))
        -- Only what is running has a lease. Asked for its state, the planner might walk over jobs_running once more.
        and j.leased_until < now()
    limit %(batch)s::integer
    for update skip locked
),
rescued as (
    update asyncq.jobs j
    set state = case when j.attempts >= j.max_attempts then 'discarded' else 'available' end,
        finished_at = case when j.attempts >= j.max_attempts then now() end,
        locked_by = null,
        leased_until = null,
        lease_token = null,
        last_error = format(
            'The lease of attempt %%s ran out: its worker %%s died, hung or lost the database.',
            j.attempts, expired.locked_by
        )
    from expired
    where j.ctid = expired.ctid
    returning
        j.id, j.queue, j.task, j.state, j.attempts, expired.locked_by, j.created_at, j.run_at, expired.attempted_at,
        j.last_error
),
-- include kept,
recorded as (
    insert into asyncq.job_history (
        job_id, created_at, run_at, started_at, expires_on, attempt, event, queue, task, worker, error
    )
    select
        rescued.id, rescued.created_at, rescued.run_at, rescued.attempted_at,
        (now() at time zone 'UTC' + kept.history)::date, rescued.attempts,
        case when rescued.state = 'available' then 'rescued' else rescued.state end,
        rescued.queue, rescued.task, rescued.locked_by, rescued.last_error
    from rescued
    join kept on kept.name = rescued.queue
),
notified as (
    -- Announced as put back into their old places.
    select count(pg_notify(btrim('asyncq.', '".'), chr(1) || waiting.queue)) as queues
    from (select distinct rescued.queue from rescued where rescued.state = 'available') waiting
)
select
    turn.late, turn.mine, rescued.id, rescued.queue, rescued.task, rescued.state, rescued.attempts, rescued.locked_by,
    (
        -- Also of one that ran out and that somebody's open transaction holds: negative, to be looked at again soon.
        select extract(epoch from min(least(running.leased_until, '9999-12-29 00:00+00')) - now())::float8
        from running
        where running.id not in (select expired.id from expired)
    ),
    now(),
    array(select writer.name from writer),
    not exists (select 1 from writer where writer.name = any(%(awaited)s::text::text[]) or writer.name like '-1/%%'),
    (select min(running.attempted_at) from running),
    clock_timestamp(),
    notified.queues
from turn
-- Read here so that it is carried out.
cross join notified
left join rescued on true
