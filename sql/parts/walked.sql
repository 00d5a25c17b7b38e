-- The rows among which a page of jobs is looked for, at most 100,000, the newest first: before, state, running (whether
-- that is the state asked for: these few are read by themselves, however many jobs are newer).
walked as not materialized (
    select walked.id, walked.queue, walked.state, walked.task, walked.created_at
    from (
        (
            select j.id, j.queue, j.state, j.task, j.created_at
            from asyncq.jobs j
            where not %(running)s::boolean and j.id < %(before)s::bigint
            order by j.id desc
            limit (select 100000)
        )
        union all
        (
            select j.id, j.queue, j.state, j.task, j.created_at
            from asyncq.jobs j
            where %(running)s::boolean and j.state = 'running' and j.attempted_at >= '-infinity'
            order by j.attempted_at desc
            limit (select 100000)
        )
    ) walked
)
