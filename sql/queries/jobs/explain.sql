-- Tell what there is to be known of why a job does not run, as far as its row and its queue show it.
--
-- Params:  id, most (how many jobs before it are counted)
-- Returns: a row (id, queue, task, priority, attempts, max_attempts, run_at, created_at, attempted_at, leased_until,
--          finished_at, locked_by, now, state, ahead, shows_errors) or none. ahead: due jobs that are taken before it.
--          shows_errors: whether the role may read last_error.
-- Locks:   none
-- Index:   primary key; jobs_claim, of which at most `most` entries are read at each priority in use above the job's
-- Note:    reads no arguments and no errors: those are not for each role.
with recursive job as (
    select
        j.id, j.queue, j.task, j.state, j.priority, j.attempts, j.max_attempts, j.run_at, j.created_at, j.attempted_at,
        j.leased_until, j.finished_at, j.locked_by
    from asyncq.jobs j
    where j.id = %(id)s::bigint
),
level (priority) as (
    select highest.priority
    from job
    cross join lateral (
        select j.priority
        from asyncq.jobs j
        where j.state = 'available' and j.queue = job.queue and j.priority >= job.priority
        order by j.priority desc
        limit 1
    ) highest
    union all
    select lower.priority
    from level
    cross join job
    cross join lateral (
        select j.priority
        from asyncq.jobs j
        where j.state = 'available' and j.queue = job.queue and j.priority >= job.priority
            and j.priority < level.priority
        order by j.priority desc
        limit 1
    ) lower
)
select
    job.id, job.queue::text, job.task::text, job.priority, job.attempts, job.max_attempts,
    least(greatest(job.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    least(greatest(job.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    case when job.attempted_at is not null
        then least(greatest(job.attempted_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    case when job.leased_until is not null
        then least(greatest(job.leased_until, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    case when job.finished_at is not null
        then least(greatest(job.finished_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    job.locked_by,
    now(),
    job.state,
    (
        select coalesce(sum(before.jobs), 0)
        from level
        cross join lateral (
            select count(*) as jobs
            from (
                select
                from asyncq.jobs j
                where j.state = 'available' and j.queue = job.queue and j.priority = level.priority
                    and j.run_at <= now() and (level.priority > job.priority or (j.run_at, j.id) < (job.run_at, job.id))
                limit %(most)s::bigint
            ) due
        ) before
    )::bigint,
    has_column_privilege('asyncq.jobs', 'last_error', 'select')
from job
