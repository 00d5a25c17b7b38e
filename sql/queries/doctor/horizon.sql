-- Find what keeps deleted rows from being removed: open transactions, prepared ones and replication slots.
--
-- Params:  none
-- Returns: rows (kind, name, seconds, transactions, what), the oldest first. seconds: since when, or null; transactions:
--          how many have begun since. Sessions of others are shown to superusers and members of pg_read_all_stats.
-- Locks:   none
select held.*
from (
    select
        'session' as kind,
        a.pid::text as name,
        extract(epoch from now() - a.xact_start)::float8 as seconds,
        greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions,
        format('%%s of %%s, %%s: %%s', coalesce(nullif(a.application_name, ''), 'a program without a name'), a.usename,
            a.state, left(a.query, 200)) as what
    from pg_stat_activity a
    where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
        and a.datname = current_database() and a.backend_type = 'client backend'
    union all
    select 'prepared transaction', p.gid, extract(epoch from now() - p.prepared)::float8, age(p.transaction), p.owner::text
    from pg_prepared_xacts p
    where p.database = current_database()
    union all
    select
        'replication slot', r.slot_name::text, null, greatest(age(r.xmin), age(r.catalog_xmin)),
        case when r.active then 'in use' else 'not in use' end
    from pg_replication_slots r
    where r.xmin is not null or r.catalog_xmin is not null
) held
order by held.transactions desc nulls last
limit 10
