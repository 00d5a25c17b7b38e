-- Which workers there are: for operators, and to tell why a job does not run. Nothing that runs jobs depends on it.
-- oldest release: 0.1.0

create table asyncq.workers (
    id          text primary key,
    seen_at     timestamptz not null default now(),
    started_at  timestamptz not null default now(),
    stopping_at timestamptz,
    concurrency integer not null,
    release     text not null,
    queues      text[] not null,
    tasks       text[] not null
)
with (
    -- Room on each page, so that being seen finds space beside the row it updates (a HOT update).
    fillfactor = 30
);

comment on table asyncq.workers is
    'Worker processes. One that was killed stays until another one starts a day later, or longer after.';
comment on column asyncq.workers.id is 'Host, process id and a random part; as in jobs.locked_by.';
comment on column asyncq.workers.seen_at is
    'When it last said that it lives, which it does twice a minute, unless a handler blocks its event loop.';
comment on column asyncq.workers.started_at is 'When it was ready.';
comment on column asyncq.workers.stopping_at is 'When it was told to stop: it claims no more.';
comment on column asyncq.workers.concurrency is 'How many jobs it runs at once.';
comment on column asyncq.workers.release is 'The release of asyncq that it runs.';
comment on column asyncq.workers.queues is 'The queues that it serves.';
comment on column asyncq.workers.tasks is 'The tasks that its code has.';
