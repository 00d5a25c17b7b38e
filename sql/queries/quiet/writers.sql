-- Say which transactions may yet commit jobs without a notification: all that have a lock under which jobs are put in.
--
-- Params:  none
-- Returns: one row: their names, as pg_locks has them. A prepared transaction keeps its name; one that came through a
--          restart of the server has a name that starts with -1.
-- Locks:   none
with
-- include writers
select coalesce(array_agg(distinct writer.name), '{}') from writer
