-- The columns of a job as a user sees it. What Python's datetime cannot hold, in any time zone, is brought to its ends.
    j.id, j.queue, j.task, j.args::text, j.priority,
    least(greatest(j.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    j.state, j.attempts, j.max_attempts, j.lease_seconds,
    least(greatest(j.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    case when j.attempted_at is not null
        then least(greatest(j.attempted_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    case when j.finished_at is not null
        then least(greatest(j.finished_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    j.last_error
