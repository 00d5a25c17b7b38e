-- How much was done and how much waits, over time: for charts, and for metrics of the whole fleet.
-- oldest release: 0.1.0

create table asyncq.activity (
    minute         timestamptz not null,
    queue          text not null,
    task           text not null,
    completed      bigint not null,
    failed         bigint not null,
    snoozed        bigint not null,
    interrupted    bigint not null,
    cancelled      bigint not null,
    discarded      bigint not null,
    waited_seconds double precision not null,
    ran_seconds    double precision not null,
    primary key (minute, queue, task)
)
with (
    -- Room on each page for the next versions of its rows (HOT updates).
    fillfactor = 50
);

comment on table asyncq.activity is 'How runs ended, added up by the workers twice a minute; kept for eight days.';
comment on column asyncq.activity.minute is 'In which minute it was added; what happened may be half a minute older.';
comment on column asyncq.activity.queue is 'The queue.';
comment on column asyncq.activity.task is 'The task.';
comment on column asyncq.activity.completed is 'Runs that succeeded.';
comment on column asyncq.activity.failed is 'Runs that failed and are tried again.';
comment on column asyncq.activity.snoozed is 'Runs that asked for a later one.';
comment on column asyncq.activity.interrupted is 'Runs that a stop of their worker interrupted.';
comment on column asyncq.activity.cancelled is 'Runs that cancelled their job.';
comment on column asyncq.activity.discarded is 'Runs that failed for good.';
comment on column asyncq.activity.waited_seconds is 'How long all these had been due when they were claimed, together.';
comment on column asyncq.activity.ran_seconds is 'How long they ran, together.';

create table asyncq.depths (
    at                 timestamptz not null,
    queue              text not null,
    due                integer not null,
    oldest_due_seconds double precision,
    scheduled          integer not null,
    running            integer not null,
    discarded          integer not null,
    cancelled          integer not null,
    primary key (at, queue)
);

comment on table asyncq.depths is
    'How many jobs stood where, looked at once a minute by one of the workers; kept for eight days. Queues without jobs have no rows.';
comment on column asyncq.depths.at is 'The minute.';
comment on column asyncq.depths.queue is 'The queue.';
comment on column asyncq.depths.due is 'Jobs that could run. Here and below counting stops at 100,000.';
comment on column asyncq.depths.oldest_due_seconds is 'How long the first of these had been due; null, if none was.';
comment on column asyncq.depths.scheduled is 'Jobs that waited for a later time.';
comment on column asyncq.depths.running is 'Jobs that workers held.';
comment on column asyncq.depths.discarded is 'Dead letters.';
comment on column asyncq.depths.cancelled is 'Cancelled jobs.';
