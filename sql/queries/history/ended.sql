-- List jobs that have ended, the newest first, with how.
--
-- Params:  before (a job's id), queue, task, event (null: any; events: completed, discarded or cancelled), limit
-- Returns: one row (reached) and then rows (null, job_id, at, event, queue, task, attempt, created_at, run_at, started_at,
--          worker, error): reached is the lowest id that was looked at, null when there is nothing before it. All that is
--          known of a job's ends comes on one page, so there can be more rows than the limit.
-- Locks:   none
-- Index:   job_history_job, of each partition, from the newest on, at most 100,000 rows
with walked as materialized (
    select h.job_id, h.at, h.event, h.queue, h.task
    from asyncq.job_history h
    where h.job_id < %(before)s::bigint
    order by h.job_id desc, h.at desc
    limit 100000
),
found as materialized (
    select walked.job_id
    from walked
    where walked.event in ('completed', 'discarded', 'cancelled')
        and (%(event)s::text is null or walked.event = %(event)s::text)
        and (%(queue)s::text is null or walked.queue = %(queue)s::text)
        and (%(task)s::text is null or walked.task = %(task)s::text)
    order by walked.job_id desc
    limit %(limit)s::integer
),
page as (
    select
        case
            when (select count(*) from found) >= %(limit)s::integer then (select min(found.job_id) from found)
            when (select count(*) from walked) >= 100000 then (select min(walked.job_id) from walked)
        end as reached,
        coalesce((select min(found.job_id) from found), %(before)s::bigint) as first
)
select
    page.reached, null::bigint, null::timestamptz, null, null, null, null::integer, null::timestamptz, null::timestamptz,
    null::timestamptz, null, null
from page
union all
(
    select
        null::bigint,
-- include event
    from asyncq.job_history h
    where h.job_id >= (select page.first from page) and h.job_id < %(before)s::bigint
        and h.event in ('completed', 'discarded', 'cancelled')
        and (%(event)s::text is null or h.event = %(event)s::text)
        and (%(queue)s::text is null or h.queue = %(queue)s::text)
        and (%(task)s::text is null or h.task = %(task)s::text)
    order by h.job_id desc, h.at desc
)
