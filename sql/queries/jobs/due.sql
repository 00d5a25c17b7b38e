-- Say in how many seconds the next job of each queue falls due, for a worker that found no more to do.
--
-- Params:  queues, looked_at (the time of the claim that found no more: nothing falls between the two)
-- Returns: rows (queue, seconds), queues with nothing scheduled left out
-- Index:   jobs_claim, one probe a queue and priority level in use
select wanted.queue, extract(epoch from min(least(next.run_at, '9999-12-29 00:00+00')) - now())::float8
from unnest(%(queues)s::text[]) as wanted (queue)
cross join lateral (
    with recursive level (priority) as (
        (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = wanted.queue
            order by j.priority desc
            limit 1
        )
        union all
        select (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = wanted.queue and j.priority < level.priority
            order by j.priority desc
            limit 1
        )
        from level
        where level.priority is not null
    )
    select (
        select j.run_at
        from asyncq.jobs j
        where j.state = 'available' and j.queue = wanted.queue and j.priority = level.priority
            and j.run_at > %(looked_at)s::timestamptz
        order by j.run_at
        limit 1
    ) as run_at
    from level
    where level.priority is not null
) next
where next.run_at is not null
group by wanted.queue
