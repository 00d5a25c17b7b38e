-- Note a worker that has come, and forget those that went without a word, once they have been silent for a day.
--
-- Params:  id, queues, tasks, concurrency, release
-- Returns: a row
-- Locks:   the rows of the silent ones, with SKIP LOCKED
-- Index:   primary key. There are few rows, and they are read all.
with silent as materialized (
    select w.id from asyncq.workers w where w.seen_at < now() - interval '1 day' for update skip locked
),
forgotten as (
    delete from asyncq.workers w where w.id in (select silent.id from silent)
)
insert into asyncq.workers as w (id, queues, tasks, concurrency, release)
values (%(id)s::text, %(queues)s::text[], %(tasks)s::text[], %(concurrency)s::integer, %(release)s::text)
on conflict (id) do update set seen_at = now()
returning 1
