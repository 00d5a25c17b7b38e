-- Put many jobs of one task in, in the order given, and wake the workers of their queue at commit.
--
-- Params:  as defer, but args is one text with the JSON of all jobs, U+001E between them, which is in no JSON (RFC 7464)
-- Returns: one row (ids): the ids in the order of args
-- Note:    identity values are drawn in the order in which the sorted rows are inserted. What all jobs have in common
--          stands in subqueries, which are evaluated once: the names are checked once, not in each row, and all get
--          one time. It is read after the lock on the table was taken.
with job as (
    insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds)
    select
        (select %(queue)s::text::asyncq.name),
        (select %(task)s::text::asyncq.name),
        given.args::jsonb,
        %(priority)s::smallint,
        (select coalesce(
            %(run_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(delay_seconds)s::float8)
        )),
        %(max_attempts)s::integer,
        %(lease_seconds)s::float8
    from unnest(string_to_array(%(args)s::text, E'\x1e')) with ordinality as given (args, place)
    order by given.place
    returning id
)
select
    array_agg(job.id order by job.id),
    -- Those that are put into the past are announced as such: workers have read on from there.
    pg_notify(
        btrim('asyncq.', '".'),
        case when %(run_at)s::timestamptz < clock_timestamp() - interval '1 second' then chr(1) else '' end
            || %(queue)s::text
    )
from job
