-- List the workers, with what they run now.
--
-- Params:  silent (seconds after which one that said nothing is taken for dead)
-- Returns: rows (id, queues, tasks, concurrency, release, started_at, seen_at, stopping_at, alive, running), the first
--          started first
-- Locks:   none
-- Index:   jobs_running
select
    w.id, w.queues, w.tasks, w.concurrency, w.release, w.started_at, w.seen_at, w.stopping_at,
    w.seen_at > now() - make_interval(secs => %(silent)s::float8),
    (select count(*) from asyncq.jobs j where j.state = 'running' and j.locked_by = w.id)
from asyncq.workers w
order by w.started_at, w.id
