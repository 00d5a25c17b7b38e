-- Read jobs by their ids, without what may hold personal data, whatever their queue.
--
-- Params:  ids
-- Returns: rows (id, queue, task, priority, run_at, state, attempts, max_attempts, lease_seconds, created_at,
--          attempted_at, finished_at), by id
-- Locks:   none
-- Index:   primary key
select
-- include outline
from (select distinct unnest(%(ids)s::text::bigint[]) as id) given
cross join lateral (
    select
        j.id, j.queue, j.task, j.priority, j.run_at, j.state, j.attempts, j.max_attempts, j.lease_seconds,
        j.created_at, j.attempted_at, j.finished_at
    from asyncq.jobs j
    where j.id = given.id
    limit 1
) j
order by j.id
