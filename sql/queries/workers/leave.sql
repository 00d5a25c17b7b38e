-- Forget a worker that has ended, and note what it has done.
--
-- Params:  id; and what was done, as in parts/counted.sql: activity_queues, activity_tasks, completed, failed, snoozed,
--          interrupted, cancelled, discarded, waited_seconds, ran_seconds
-- Returns: a row if it was there
-- Locks:   its row, which nobody else writes; rows of this minute's activity
-- Index:   primary keys
with
-- include counted
delete from asyncq.workers w where w.id = %(id)s::text
returning 1
