-- Tell how the server is set up, as far as it concerns a queue.
--
-- Params:  none
-- Returns: a row (version, read_only, fsync, synchronous_commit, autovacuum, track_counts, connections, most_connections,
--          notify_usage, now)
-- Locks:   none
select
    current_setting('server_version_num')::integer,
    pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
    current_setting('fsync') = 'on',
    current_setting('synchronous_commit') <> 'off',
    current_setting('autovacuum') = 'on',
    current_setting('track_counts') = 'on',
    (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
    current_setting('max_connections')::integer,
    pg_notification_queue_usage(),
    extract(epoch from clock_timestamp())::float8
