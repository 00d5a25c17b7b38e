-- Tell how autovacuum keeps up with the jobs table.
--
-- Params:  none
-- Returns: a row (vacuumed, live, dead, seconds since the last vacuum or null, bytes of the table)
--          vacuumed: whether autovacuum is left switched on for it
-- Locks:   none
select
    not coalesce(c.reloptions && array['autovacuum_enabled=false', 'autovacuum_enabled=off'], false),
    coalesce(s.n_live_tup, 0),
    coalesce(s.n_dead_tup, 0),
    extract(epoch from now() - greatest(s.last_autovacuum, s.last_vacuum))::float8,
    pg_table_size(c.oid)
from pg_class c
left join pg_stat_all_tables s on s.relid = c.oid
where c.oid = 'asyncq.jobs'::regclass
