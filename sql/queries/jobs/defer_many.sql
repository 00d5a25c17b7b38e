-- Put many jobs of one task in, in the order given, and wake the workers of their queue at commit.
--
-- Params:  as defer, but args is an array with one JSON text a job
-- Returns: one row (ids, run_at): the ids in the order of args
-- Note:    identity values are drawn in the order in which the sorted rows are inserted.
with job as (
    insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds)
    select
        %(queue)s::text, %(task)s::text, given.args::jsonb, %(priority)s::smallint,
        coalesce(%(run_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay_seconds)s::float8)),
        %(max_attempts)s::integer, %(lease_seconds)s::float8
    from unnest(%(args)s::text[]) with ordinality as given (args, place)
    order by given.place
    returning id
)
select array_agg(job.id order by job.id), pg_notify(btrim('asyncq.', '".'), %(queue)s::text) from job
