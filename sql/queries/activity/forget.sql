-- Delete what was noted of activity and depths more than eight days ago, a batch at a time.
--
-- Params:  batch (of each)
-- Returns: one row: how many rows were deleted
-- Locks:   the rows, with SKIP LOCKED: other workers are at it too
-- Index:   primary keys
with old_activity as materialized (
    select a.ctid from asyncq.activity a where a.minute < now() - interval '8 days' order by a.minute
    limit %(batch)s::integer for update skip locked
),
old_depths as materialized (
    select d.ctid from asyncq.depths d where d.at < now() - interval '8 days' order by d.at
    limit %(batch)s::integer for update skip locked
),
activity as (
    delete from asyncq.activity a where a.ctid = any(array(select old_activity.ctid from old_activity)) returning 1
),
depths as (
    delete from asyncq.depths d where d.ctid = any(array(select old_depths.ctid from old_depths)) returning 1
)
select (select count(*) from activity) + (select count(*) from depths)
