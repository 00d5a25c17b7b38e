-- Name the tasks that a worker does not know and whose due jobs have waited for a while.
--
-- Params:  queues, tasks (known names), waited (seconds)
-- Returns: rows (queue, task, seconds): how long the first of each has waited, the longest first
-- Locks:   none
-- Index:   jobs_claim. Of each queue and priority only the first 1,000 jobs are read, and of each queue 10,000: behind a
--          backlog that the worker knows it sees nothing, and what nobody takes comes to the head in time.
select unknown.queue, unknown.task, extract(epoch from now() - min(greatest(unknown.run_at, '0001-01-01 00:00+00')))::float8
from (
    select given.queue, head.task, head.run_at
    from unnest(%(queues)s::text[]) as given (queue)
    cross join lateral (
        with recursive level (priority) as (
            (
                select j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = given.queue
                order by j.priority desc
                limit 1
            )
            union all
            select lower.priority
            from level
            cross join lateral (
                select j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = given.queue and j.priority < level.priority
                order by j.priority desc
                limit 1
            ) lower
        )
        select waiting.task, waiting.run_at
        from level
        cross join lateral (
            select j.task, j.run_at
            from asyncq.jobs j
            where j.state = 'available' and j.queue = given.queue and j.priority = level.priority
                and j.run_at <= now() - make_interval(secs => %(waited)s::float8)
            order by j.run_at, j.id
            limit 1000
        ) waiting
        limit 10000
    ) head
) unknown
where unknown.task <> all(%(tasks)s::text[])
group by unknown.queue, unknown.task
order by unknown.queue, min(unknown.run_at), unknown.task
