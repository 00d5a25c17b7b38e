-- Put one job in, in the caller's own transaction, and wake the workers of its queue at commit, if they need it.
--
-- Params:  queue, task, args, priority, run_at (null: now), delay_seconds, max_attempts, lease_seconds, headers
-- Returns: one row (id, run_at)
-- Locks:   none on rows; an advisory one is tried for an instant: refused, workers look by themselves and no notification
--          is needed (`asyncq.worker.quiet`). It is tried behind the INSERT, that is under its lock on the table: on this
--          order hangs that no wake-up is lost. The notification takes PostgreSQL's notify lock at commit. One
--          notification a queue and transaction, however many jobs: equal ones are folded by the server.
with job as (
    insert into asyncq.jobs (queue, task, args, priority, run_at, max_attempts, lease_seconds, headers)
    values (
        %(queue)s::text, %(task)s::text, %(args)s::text::jsonb, %(priority)s::smallint,
        coalesce(%(run_at)s::timestamptz, clock_timestamp() + make_interval(secs => %(delay_seconds)s::float8)),
        %(max_attempts)s::integer, %(lease_seconds)s::float8, %(headers)s::text::jsonb
    )
    returning id, queue, run_at
)
select
    job.id,
    -- What Python's datetime cannot hold, in any time zone, is brought to its ends.
    least(greatest(job.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    case
        -- One that is put into the past is announced as such, always: workers have read on from there.
        when %(run_at)s::timestamptz < clock_timestamp() - interval '250 ms'
            then pg_notify(btrim('asyncq.', '".'), chr(1) || job.queue)
        when pg_try_advisory_lock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || job.queue, 7))
            then case when pg_advisory_unlock_shared(hashtextextended(btrim('asyncq.', '".') || '.' || job.queue, 7))
                then pg_notify(btrim('asyncq.', '".'), job.queue)
            end
    end
from job
