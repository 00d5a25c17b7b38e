-- In place of parts/retired.sql: delete the rows of runs that succeeded and are still held, ids, tokens, and record them.
-- include held,
retired as (
    delete from asyncq.jobs j
    where j.ctid = any(array(select held.ctid from held))
    returning
        j.id, j.lease_token, j.queue, j.task, j.attempts, j.created_at, j.run_at, j.attempted_at, j.locked_by
),
-- include kept,
recorded as (
    insert into asyncq.job_history (
        job_id, created_at, run_at, started_at, expires_on, attempt, event, queue, task, worker
    )
    select
        retired.id, retired.created_at, retired.run_at, retired.attempted_at,
        (now() at time zone 'UTC' + kept.history)::date, retired.attempts, 'completed', retired.queue, retired.task,
        retired.locked_by
    from retired
    join kept on kept.name = retired.queue
)
