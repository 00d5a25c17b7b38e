-- The same as `job`, without what may hold personal data: arguments and errors.
    j.id, j.queue, j.task, j.priority,
    least(greatest(j.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    j.state, j.attempts, j.max_attempts, j.lease_seconds,
    least(greatest(j.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    case when j.attempted_at is not null
        then least(greatest(j.attempted_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    case when j.finished_at is not null
        then least(greatest(j.finished_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end
