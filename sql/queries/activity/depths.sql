-- Say how many jobs stood where over time.
--
-- Params:  seconds (how far back), step (seconds of which the highest numbers are given), queue (null: all, each by itself)
-- Returns: rows (at, queue, due, oldest_due_seconds, scheduled, running, discarded, cancelled): at is the beginning of a step;
--          steps in which a queue had no jobs have no rows
-- Locks:   none
-- Index:   primary key
select
    to_timestamp(floor(extract(epoch from d.at) / %(step)s::float8) * %(step)s::float8), d.queue,
    max(d.due), max(d.oldest_due_seconds), max(d.scheduled), max(d.running), max(d.discarded), max(d.cancelled)
from asyncq.depths d
where d.at > now() - make_interval(secs => %(seconds)s::float8)
    and (%(queue)s::text is null or d.queue = %(queue)s::text)
group by 1, 2
order by 1, 2
