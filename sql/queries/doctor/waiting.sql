-- List what stands at the heads of the queues: due jobs, by queue and task.
--
-- Params:  none
-- Returns: rows (queue, task, jobs, seconds): how many of the first ones, and how long the first of them has been due
-- Locks:   none
-- Index:   jobs_claim, queue by queue and priority by priority; of each priority the first 1,000 due jobs are read, and of
--          each queue 10,000
with recursive queue (name) as (
    (select min(j.queue::text) from asyncq.jobs j where j.state = 'available')
    union all
    select (select min(j.queue::text) from asyncq.jobs j where j.state = 'available' and j.queue > queue.name)
    from queue
    where queue.name is not null
)
select
    queue.name, head.task::text, count(*),
    extract(epoch from now() - min(greatest(head.run_at, '0001-01-01 00:00+00')))::float8
from queue
cross join lateral (
    with recursive level (priority) as (
        (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = queue.name
            order by j.priority desc
            limit 1
        )
        union all
        select lower.priority
        from level
        cross join lateral (
            select j.priority
            from asyncq.jobs j
            where j.state = 'available' and j.queue = queue.name and j.priority < level.priority
            order by j.priority desc
            limit 1
        ) lower
    )
    select due.task, due.run_at
    from level
    cross join lateral (
        select j.task, j.run_at
        from asyncq.jobs j
        where j.state = 'available' and j.queue = queue.name and j.priority = level.priority and j.run_at <= now()
        order by j.run_at, j.id
        limit 1000
    ) due
    limit 10000
) head
where queue.name is not null
group by queue.name, head.task
order by 1, 4 desc, 2
