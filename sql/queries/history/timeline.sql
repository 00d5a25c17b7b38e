-- Say what became of one job, run by run.
--
-- Params:  id
-- Returns: rows (job_id, at, event, queue, task, attempt, created_at, run_at, started_at, worker, error), oldest first
-- Locks:   none
-- Index:   job_history_job, of each partition
select
-- include event
from asyncq.job_history h
where h.job_id = %(id)s::bigint
order by h.at
