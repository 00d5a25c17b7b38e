-- List the dead letters of one queue, the latest first.
--
-- Params:  queue, limit
-- Returns: rows (id, queue, task, args, priority, run_at, state, attempts, max_attempts, lease_seconds, created_at,
--          attempted_at, finished_at, last_error)
-- Index:   jobs_finished
select
    j.id, j.queue, j.task, j.args::text, j.priority,
    least(greatest(j.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    j.state, j.attempts, j.max_attempts, j.lease_seconds,
    least(greatest(j.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    least(greatest(j.attempted_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    least(greatest(j.finished_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    j.last_error
from asyncq.jobs j
where j.queue = %(queue)s::text and j.finished_at is not null and j.state = 'discarded'
order by j.finished_at desc, j.id desc
limit %(limit)s::bigint
