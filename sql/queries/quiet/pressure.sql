-- Count the sessions that wait for the lock of notifications: at commit, each for those before it.
--
-- Params:  none
-- Returns: one row
-- Locks:   none
-- Note:    the lock is on no database in particular, object 0 of pg_database, as PostgreSQL has it since version 9.0.
select count(*)
from pg_locks l
where l.locktype = 'object' and l.classid = 'pg_database'::regclass and l.objid = 0 and not l.granted
