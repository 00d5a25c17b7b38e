-- Note that a worker lives, whether it is stopping and what it has done; and, once a minute, how many jobs stand where.
--
-- Params:  id, stopping; queues (null) and most, as in jobs/stats.sql; and what was done, as in parts/counted.sql:
--          activity_queues, activity_tasks, completed, failed, snoozed, interrupted, cancelled, discarded,
--          waited_seconds, ran_seconds
-- Returns: one row: whether it is there; if not, it has to be registered (again)
-- Locks:   its row, which nobody else writes; rows of this minute's activity
-- Index:   primary keys; for what is counted see jobs/stats.sql
-- Races:   two workers that count in the same moment: the second's rows are dropped
with seen as (
    update asyncq.workers w
    set seen_at = now(), stopping_at = case when %(stopping)s::boolean then coalesce(w.stopping_at, now()) end
    where w.id = %(id)s::text
    returning 1
),
-- include counted,
looked as (
    insert into asyncq.depths (at, queue, due, oldest_due_seconds, scheduled, running, discarded, cancelled)
    select
        date_trunc('minute', now()), found.queue, found.due, found.oldest_due_seconds, found.scheduled, found.running,
        found.discarded, found.cancelled
    from (
-- include stats
    ) as found (queue, due, oldest_due_seconds, scheduled, running, discarded, cancelled)
    -- Asked once, and before anything is counted.
    where not (select exists (select from asyncq.depths d where d.at >= date_trunc('minute', now())))
    on conflict (at, queue) do nothing
)
select exists (select from seen)
