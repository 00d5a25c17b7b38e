-- Cancel jobs that wait: they are kept, with the reason, and not run.
--
-- Params:  queue, ids, reason (kept as last_error)
-- Returns: one row: the ids that were changed, ascending
-- Locks:   the rows, in the order of their ids: two such commands wait for each other and never dead-lock
-- Index:   primary key. The state is not asked for: it would invite the planner to walk over all that waits. What has
--          neither a lease nor an end is available.
-- Races:   a claim since the snapshot: the conditions are looked at again under the lock, and the job is passed over. A
--          claim after it skips the row until this transaction ends.
with given as (
    select distinct unnest(%(ids)s::text::bigint[]) as id order by 1
),
chosen as materialized (
    select chosen.id
    from given
    cross join lateral (
        select j.id
        from asyncq.jobs j
        where j.id = given.id and j.queue = %(queue)s::text and j.lease_token is null and j.finished_at is null
        for update
    ) chosen
),
changed as (
    update asyncq.jobs j
    set state = 'cancelled', finished_at = now(), last_error = %(reason)s::text
    where j.id = any(array(select chosen.id from chosen))
    returning j.id, j.created_at, j.run_at, j.attempts, j.queue, j.task
),
-- include kept,
recorded as (
    insert into asyncq.job_history (job_id, created_at, run_at, expires_on, attempt, event, queue, task, error)
    select
        changed.id, changed.created_at, changed.run_at, (now() at time zone 'UTC' + kept.history)::date,
        changed.attempts, 'cancelled', changed.queue, changed.task, %(reason)s::text
    from changed
    join kept on kept.name = changed.queue
)
select coalesce(array_agg(changed.id order by changed.id), '{}') from changed
