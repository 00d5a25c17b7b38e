-- Say what was done over time.
--
-- Params:  seconds (how far back), step (seconds that are added up), queue (null: all, each by itself)
-- Returns: rows (at, queue, completed, failed, snoozed, interrupted, cancelled, discarded, waited_seconds, ran_seconds): at
--          is the beginning of a step; steps in which nothing was done have no rows
-- Locks:   none
-- Index:   primary key
select
    to_timestamp(floor(extract(epoch from a.minute) / %(step)s::float8) * %(step)s::float8), a.queue,
    sum(a.completed)::bigint, sum(a.failed)::bigint, sum(a.snoozed)::bigint, sum(a.interrupted)::bigint,
    sum(a.cancelled)::bigint, sum(a.discarded)::bigint, sum(a.waited_seconds), sum(a.ran_seconds)
from asyncq.activity a
where a.minute > now() - make_interval(secs => %(seconds)s::float8)
    and (%(queue)s::text is null or a.queue = %(queue)s::text)
group by 1, 2
order by 1, 2
