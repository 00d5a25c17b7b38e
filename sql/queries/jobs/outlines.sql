-- Give a page of one queue's jobs, the newest first, without what may hold personal data: for roles that may not read that.
--
-- Params:  queue; before (an id: only older jobs), limit; state, task, age (seconds since it was deferred, at least)
--          (null: any); running (whether that is the state)
-- Returns: rows (reached, id, queue, task, priority, run_at, state, attempts, max_attempts, lease_seconds,
--          created_at, attempted_at, finished_at). reached: the page is not full, but 100,000 jobs were read, the
--          last with this id; else null. One row with a null id when there was nothing.
-- Locks:   none
-- Index:   primary key, backwards; jobs_running when these are asked for. Each filter looks at rows as they are read.
with
-- include walked,
page as materialized (
    select walked.id
    from walked
    where walked.queue = %(queue)s::text and walked.id < %(before)s::bigint
        and (%(state)s::text is null or walked.state = %(state)s::text)
        and (%(task)s::text is null or walked.task = %(task)s::text)
        and (%(age)s::float8 is null or walked.created_at <= now() - make_interval(secs => %(age)s::float8))
    order by walked.id desc
    limit %(limit)s::integer
)
select
    (
        -- Read again only where the page is not full.
        select case when count(*) = 100000 then min(rest.id) end
        from (
            select j.id
            from asyncq.jobs j
            where not %(running)s::boolean and j.id < %(before)s::bigint
            order by j.id desc
            limit (select 100000)
        ) rest
        where (select count(*) from page) < %(limit)s::integer
    ),
-- include outline
from (values (1)) as always (there)
left join page on true
left join lateral (
    select
        j.id, j.queue, j.task, j.priority, j.run_at, j.state, j.attempts, j.max_attempts, j.lease_seconds,
        j.created_at, j.attempted_at, j.finished_at
    from asyncq.jobs j
    where j.id = page.id
    -- Each looked up by itself: joined, all of the table might be read.
    limit 1
) j on true
order by page.id desc
