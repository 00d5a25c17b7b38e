-- List the dead letters of one queue, the latest first.
--
-- Params:  queue, limit
-- Returns: rows (id, queue, task, args, priority, run_at, state, attempts, max_attempts, lease_seconds, created_at,
--          attempted_at, finished_at, last_error)
-- Index:   jobs_finished
select
-- include job
from asyncq.jobs j
where j.queue = %(queue)s::text and j.finished_at is not null and j.state = 'discarded'
order by j.finished_at desc, j.id desc
limit %(limit)s::bigint
