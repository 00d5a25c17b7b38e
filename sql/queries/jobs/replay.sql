-- Put dead letters back into their queue, with all their attempts, and wake its workers at commit.
--
-- Params:  queue, ids (null: every discarded job of the queue; named ones may be cancelled too)
-- Returns: one row: the ids put back, ascending
-- Locks:   the rows, in the order of their ids: two replays wait for each other and never dead-lock
-- Index:   jobs_finished, or the primary key when ids are named
with chosen as materialized (
    select j.id, j.attempts
    from asyncq.jobs j
    where j.queue = %(queue)s::text and j.finished_at is not null
        and case
            when %(ids)s::bigint[] is null then j.state = 'discarded'
            else j.id = any(%(ids)s::bigint[]) and j.state in ('cancelled', 'discarded')
        end
    order by j.id
    for update
),
replayed as (
    update asyncq.jobs j
    set state = 'available', attempts = 0, run_at = clock_timestamp(), finished_at = null
    where j.id = any(array(select chosen.id from chosen))
    returning j.id, j.created_at, j.run_at, j.queue, j.task
),
-- include kept,
recorded as (
    insert into asyncq.job_history (job_id, created_at, run_at, expires_on, attempt, event, queue, task)
    select
        replayed.id, replayed.created_at, replayed.run_at, (now() at time zone 'UTC' + kept.history)::date,
        chosen.attempts, 'replayed', replayed.queue, replayed.task
    from replayed
    join chosen on chosen.id = replayed.id
    join kept on kept.name = replayed.queue
),
notified as (
    select pg_notify(btrim('asyncq.', '".'), %(queue)s::text) from replayed limit 1
)
select coalesce(array_agg(replayed.id order by replayed.id), '{}'), (select count(*) from notified) from replayed
