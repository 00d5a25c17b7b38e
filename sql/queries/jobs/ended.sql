-- Count what a purge, or a replay of all, would take, up to 100,000.
--
-- Params:  queue, state (null: discarded and cancelled), age (seconds since they ended, at least)
-- Returns: one row: how many
-- Locks:   none
-- Index:   jobs_finished
select count(*)
from (
    select 1
    from asyncq.jobs j
    where j.finished_at is not null and j.queue = %(queue)s::text
        and j.finished_at <= now() - make_interval(secs => %(age)s::float8)
        and (%(state)s::text is null or j.state = %(state)s::text)
    order by j.finished_at
    limit (select 100000)
) ended
