-- The transactions of others that may yet commit jobs: all that hold a lock under which jobs are put in.
writer as materialized (
    select l.virtualtransaction as name
    from pg_locks l
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
        and l.relation = 'asyncq.jobs'::regclass and l.pid is distinct from pg_backend_pid()
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
)
