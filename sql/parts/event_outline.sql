-- The same as `event`, without errors, which may hold personal data. What Python's datetime cannot hold, in any time zone, is brought to its ends.
    h.job_id, h.at, h.event, h.queue, h.task, h.attempt,
    least(greatest(h.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    least(greatest(h.run_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00'),
    case when h.started_at is not null
        then least(greatest(h.started_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00')
    end,
    h.worker, null
