-- Put many jobs of one task in, in the order given, and wake the workers of their queue at commit, if they need it.
--
-- Params:  as defer, but args is one text with the JSON of all jobs, U+001E between them, which is in no JSON (RFC 7464)
-- Returns: one row (ids): the ids in the order of args
-- Note:    identity values are drawn in the order in which the sorted rows are inserted. What all jobs have in common
--          stands in subqueries, which are evaluated once: the names are checked once, not in each row, and all get
--          one time. It is read after the lock on the table was taken.
with job as (
    insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds, headers)
    select
        (select %(queue)s::text::asyncq.name),
        (select %(task)s::text::asyncq.name),
        given.args::jsonb,
        %(priority)s::smallint,
        (select coalesce(
            %(run_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(delay_seconds)s::float8)
        )),
        %(max_attempts)s::integer,
        %(lease_seconds)s::float8,
        (select %(headers)s::text::jsonb)
    from unnest(string_to_array(%(args)s::text, E'\x1e')) with ordinality as given (args, place)
    order by given.place
    returning id
)
select
    array_agg(job.id order by job.id),
    -- As in defer.
    case
        when %(run_at)s::timestamptz < clock_timestamp() - interval '250 ms'
            then pg_notify(btrim('asyncq.', '".'), chr(1) || %(queue)s::text)
        when pg_try_advisory_lock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || %(queue)s::text, 7))
            then case when pg_advisory_unlock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || %(queue)s::text, 7))
                then pg_notify(btrim('asyncq.', '".'), %(queue)s::text)
            end
    end
from job
