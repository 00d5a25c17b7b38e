-- What became of jobs, for queues that keep it: a row for each end of a run, and for each end of a job.
-- oldest release: 0.1.0

create table asyncq.queues (
    name    asyncq.name primary key,
    history interval
);

comment on table asyncq.queues is 'What is known of queues beside their jobs, as the workers that serve them said last.';
comment on column asyncq.queues.name is 'The queue.';
comment on column asyncq.queues.history is 'How long its history is kept; none is, when this is null.';

-- In partitions by the day on which their rows are over age: rows that are kept for a day do not wait for others that
-- are kept for a year, and all go by dropping a table, never one by one.
create table asyncq.job_history (
    job_id     bigint not null,
    at         timestamptz not null default clock_timestamp(),
    created_at timestamptz not null,
    run_at     timestamptz not null,
    started_at timestamptz,
    expires_on date not null,
    attempt    integer not null,
    event      text not null,
    queue      text not null,
    task       text not null,
    worker     text,
    error      text
) partition by range (expires_on);

create index job_history_job on asyncq.job_history (job_id, at);

-- Takes what has no partition of its own: no outcome is held up by a table that was not made in time.
create table asyncq.job_history_default partition of asyncq.job_history default;

comment on table asyncq.job_history is 'How runs and jobs ended, of queues that keep history. Rows are only ever added.';
comment on column asyncq.job_history.job_id is 'The job, which need not be there any more.';
comment on column asyncq.job_history.at is 'When it happened.';
comment on column asyncq.job_history.created_at is 'When the job was deferred.';
comment on column asyncq.job_history.run_at is 'When the run was due.';
comment on column asyncq.job_history.started_at is 'When the run was claimed.';
comment on column asyncq.job_history.expires_on is 'The day, in UTC, after which this row may go.';
comment on column asyncq.job_history.attempt is 'The number of the run.';
comment on column asyncq.job_history.event is
    'completed, failed (it runs again), snoozed, interrupted, rescued, cancelled, discarded, or replayed.';
comment on column asyncq.job_history.queue is 'Its queue.';
comment on column asyncq.job_history.task is 'Its task.';
comment on column asyncq.job_history.worker is 'Who ran it.';
comment on column asyncq.job_history.error is 'The failure''s traceback, cut to size, or why it was cancelled.';

-- Called by workers, which need not have the right to make and drop tables.
create function asyncq.keep_history() returns integer
    language plpgsql
    security definer
    set search_path = pg_catalog, pg_temp
    -- Outcomes that are about to be written wait behind whoever waits for a lock here, so nobody waits for long.
    set lock_timeout = '100ms'
as $function$
declare
    today constant date := (now() at time zone 'UTC')::date;
    day date;
    partition text;
    undone integer := 0;
begin
    -- One at a time is enough.
    if not pg_try_advisory_xact_lock(hashtextextended(btrim('asyncq.', '".') || ' history', 7)) then
        return 0;
    end if;
    -- Of what ends today, tomorrow and the day after.
    for day in
        select distinct span.day::date
        from asyncq.queues q
        cross join lateral generate_series(
            date_trunc('day', today + q.history), date_trunc('day', today + 3 + q.history), interval '1 day'
        ) as span (day)
        where q.history is not null
        order by 1
    loop
        partition := 'job_history_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(format('asyncq.%I', partition)) is not null;
        begin
            -- Made apart and attached: that does not wait for those who write or read the others.
            execute format('create table asyncq.%I (like asyncq.job_history including all)', partition);
            execute format(
                'alter table asyncq.job_history attach partition asyncq.%I for values from (%L) to (%L)',
                partition, day, day + 1
            );
        exception
            when lock_not_available then
                undone := undone + 1;
            when check_violation then
                -- The default partition has rows of this day. They stay there, and so do those that follow.
                null;
        end;
    end loop;
    for partition in
        select c.relname
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'asyncq.job_history'::regclass
            and c.relname ~ '^job_history_[0-9]{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < today
        order by c.relname
    loop
        begin
            execute format('drop table asyncq.%I', partition);
        exception
            when lock_not_available then
                undone := undone + 1;
        end;
    end loop;
    if exists (select from asyncq.job_history_default)
        and not exists (select from asyncq.job_history_default d where d.expires_on >= today)
    then
        begin
            truncate asyncq.job_history_default;
        exception
            when lock_not_available then
                undone := undone + 1;
        end;
    end if;
    return undone;
end
$function$;

revoke execute on function asyncq.keep_history() from public;

comment on function asyncq.keep_history is
    'Makes the partitions of asyncq.job_history that will be needed, and drops those over age. Returns how many changes somebody''s lock kept it from: to be tried again.';
