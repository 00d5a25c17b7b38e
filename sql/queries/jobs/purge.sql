-- Delete jobs of a queue that ended without success, a batch at a time, the oldest first.
--
-- Params:  queue, state (null: discarded and cancelled), age (seconds since they ended, at least), batch
-- Returns: one row: how many were deleted
-- Locks:   the rows, with SKIP LOCKED: a replay under way keeps its rows, and nothing is waited for
-- Index:   jobs_finished
with ended as materialized (
    select j.ctid
    from asyncq.jobs j
    where j.finished_at is not null and j.queue = %(queue)s::text
        and j.finished_at <= now() - make_interval(secs => %(age)s::float8)
        and (%(state)s::text is null or j.state = %(state)s::text)
    order by j.finished_at
    limit %(batch)s::integer
    for update skip locked
),
deleted as (
    delete from asyncq.jobs j where j.ctid = any(array(select ended.ctid from ended)) returning j.id
)
select count(*) from deleted
