-- Look for the first due job of a queue as a worker does that has just started, to be explained and timed.
--
-- Params:  queue
-- Returns: a row (id), or none
-- Locks:   none
-- Index:   jobs_claim: many pages for one job are what dead rows leave at its head
select j.id
from asyncq.jobs j
where j.state = 'available' and j.queue = %(queue)s::text and j.run_at <= now()
order by j.priority desc, j.run_at, j.id
limit 1
