-- Ask whoever keeps these queues quiet, and cannot look, to give way.
--
-- Params:  queues
-- Returns: one row
-- Note:    the payload starts with a tabulator, which is in no queue's name.
select count(pg_notify(btrim('asyncq.', '".'), chr(9) || given.queue))
from unnest(%(queues)s::text[]) as given (queue)
