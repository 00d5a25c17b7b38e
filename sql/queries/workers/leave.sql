-- Forget a worker that has ended.
--
-- Params:  id
-- Returns: a row if it was there
-- Locks:   its row, which nobody else writes
-- Index:   primary key
delete from asyncq.workers w where w.id = %(id)s::text
returning 1
