-- Delete cancelled and discarded jobs whose time of retention is over, a batch at a time.
--
-- Params:  queues, retentions (seconds, of each queue), batch (of each queue)
-- Returns: one row: how many were deleted
-- Locks:   the rows, with SKIP LOCKED: a replay under way keeps its rows
-- Index:   jobs_finished
with ended as materialized (
    select old.ctid
    from unnest(%(queues)s::text[], %(retentions)s::float8[]) as kept (queue, seconds)
    cross join lateral (
        select j.ctid
        from asyncq.jobs j
        where j.finished_at is not null and j.queue = kept.queue
            and j.finished_at < now() - make_interval(secs => kept.seconds)
        order by j.finished_at
        limit %(batch)s::integer
        for update skip locked
    ) old
),
deleted as (
    delete from asyncq.jobs j where j.ctid = any(array(select ended.ctid from ended)) returning j.id
)
select count(*) from deleted
