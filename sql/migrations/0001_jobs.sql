-- The jobs table, its indexes, and asyncq.defer for callers in any language.
-- oldest release: 0.1.0

-- Names are checked where they come in. As constraints of the table they would be checked again by each update of a row.
create domain asyncq.name as text
    constraint name_has_length check (length(value) between 1 and 128)
    constraint name_is_printable check (value !~ '[\u0001-\u001f\u007f-\u009f]');

comment on domain asyncq.name is 'A queue''s or a task''s name: 1 to 128 characters, no control characters.';

create table asyncq.jobs (
    id            bigint generated always as identity primary key,
    lease_token   bigint,
    -- The clock, not the statement's time: a row's run_at is never earlier than its transaction's lock on this table.
    run_at        timestamptz not null default clock_timestamp(),
    created_at    timestamptz not null default statement_timestamp(),
    attempted_at  timestamptz,
    leased_until  timestamptz,
    finished_at   timestamptz,
    lease_seconds double precision not null default 60,
    attempts      integer not null default 0,
    max_attempts  integer not null default 10,
    priority      smallint not null default 0,
    state         text not null default 'available',
    queue         asyncq.name not null,
    task          asyncq.name not null,
    locked_by     text,
    args          jsonb not null default '{}',
    last_error    text,

    constraint jobs_state_known check (state in ('available', 'running', 'cancelled', 'discarded')),
    constraint jobs_attempts_counted check (attempts >= 0 and max_attempts >= 1),
    constraint jobs_lease_bounded check (lease_seconds between 0.5 and 604800),
    constraint jobs_running_has_holder check (
        (state = 'running') = (lease_token is not null)
        and (state = 'running') = (leased_until is not null)
        and (state = 'running') = (locked_by is not null)
        and (state <> 'running' or attempted_at is not null)
    ),
    constraint jobs_ended_has_time check ((state in ('cancelled', 'discarded')) = (finished_at is not null))
)
with (
    -- Room on each page, so that a heartbeat finds space beside the row it updates (a HOT update).
    fillfactor = 70,
    -- Rows come and go: dead ones are to be found early and at full speed, however large the table was.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0.01,
    toast.autovacuum_vacuum_cost_delay = 0
);

-- The claim's index holds candidates only, in the order in which they are taken.
create index jobs_claim on asyncq.jobs (queue, priority desc, run_at, id) where state = 'available';

-- The rescue's index. Not on leased_until: an index on a column that heartbeats change would make each
-- of them write every index of the table.
create index jobs_running on asyncq.jobs (attempted_at) where state = 'running';

-- Dead letters: listed, replayed and cleaned up by queue, oldest first.
create index jobs_finished on asyncq.jobs (queue, finished_at, id) where finished_at is not null;

comment on table asyncq.jobs is
    'Jobs that wait, run, or ended without success. A job that succeeded is deleted.';
comment on column asyncq.jobs.id is 'Given in the order of inserting, which is not the order of commits.';
comment on column asyncq.jobs.queue is 'The queue: who serves it. 1 to 128 characters, no control characters.';
comment on column asyncq.jobs.task is 'The registered name of the handler. Workers claim only tasks that they know.';
comment on column asyncq.jobs.args is 'The handler''s arguments, an object keyed by parameter name.';
comment on column asyncq.jobs.priority is 'Higher runs first.';
comment on column asyncq.jobs.run_at is 'Not claimed before this time. Among equal priorities the earliest runs first.';
comment on column asyncq.jobs.state is
    'available (waiting, scheduled or to be retried), running, cancelled, or discarded (attempts used up).';
comment on column asyncq.jobs.attempts is
    'Runs begun, raised by the claim; a stop, a snooze or a claim that never started gives its run back.';
comment on column asyncq.jobs.max_attempts is 'A failure, or a lost worker, at this many attempts discards the job.';
comment on column asyncq.jobs.lease_seconds is 'How long a claim or a heartbeat holds the job.';
comment on column asyncq.jobs.locked_by is 'The worker process that runs it.';
comment on column asyncq.jobs.leased_until is 'Past this time the holder is taken for dead, and the job is rescued.';
comment on column asyncq.jobs.lease_token is
    'Random, drawn for each claim: whoever cannot name it can neither finish nor extend the run.';
comment on column asyncq.jobs.last_error is 'The latest failure''s traceback, cut to size, or why it was cancelled.';
comment on column asyncq.jobs.created_at is 'When it was deferred.';
comment on column asyncq.jobs.attempted_at is 'When its latest run was claimed.';
comment on column asyncq.jobs.finished_at is 'When it was cancelled or discarded; the time of retention starts here.';

create function asyncq.defer(
    task text,
    args jsonb default '{}',
    queue text default 'default',
    run_at timestamptz default null,
    priority integer default 0,
    max_attempts integer default 10,
    lease_seconds double precision default 60
) returns bigint
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $function$
declare
    new_id bigint;
begin
    if defer.args is null or jsonb_typeof(defer.args) <> 'object' then
        raise exception 'asyncq.defer: args must be a JSON object keyed by parameter name'
            using errcode = 'invalid_parameter_value';
    end if;
    if octet_length(defer.args::text) > 16777216 then
        raise exception 'asyncq.defer: args must be at most 16 MiB of JSON'
            using errcode = 'invalid_parameter_value', hint = 'Pass keys rather than documents.';
    end if;
    if defer.priority is null or defer.priority not between -32768 and 32767 then
        raise exception 'asyncq.defer: priority must be between -32768 and 32767'
            using errcode = 'numeric_value_out_of_range';
    end if;
    insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds)
    values (
        defer.queue, defer.task, defer.args, defer.priority::smallint,
        coalesce(defer.run_at, clock_timestamp()), defer.max_attempts, defer.lease_seconds
    )
    returning id into new_id;
    -- One that is put into the past is announced as such, always: workers have read on from there. Other notifications
    -- are left out while workers look by themselves, which one of them says by a lock. It has to be asked for after the
    -- INSERT, and not waited for.
    perform case
        when defer.run_at < clock_timestamp() - interval '250 ms'
            then pg_notify(btrim('asyncq.', '".'), chr(1) || defer.queue)
        when pg_try_advisory_lock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || defer.queue, 7))
            then case when pg_advisory_unlock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || defer.queue, 7))
                then pg_notify(btrim('asyncq.', '".'), defer.queue)
            end
    end;
    return new_id;
end
$function$;

comment on function asyncq.defer is
    'Puts a job in, as part of the calling transaction, and wakes the workers of its queue at commit. Returns its id.';
