-- List the indexes of the jobs table.
--
-- Params:  none
-- Returns: rows (name, valid, bytes)
-- Locks:   none
select c.relname::text, i.indisvalid and i.indisready, pg_relation_size(c.oid)
from pg_index i
join pg_class c on c.oid = i.indexrelid
where i.indrelid = 'asyncq.jobs'::regclass
order by 1
