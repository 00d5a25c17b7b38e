-- Take due jobs of known tasks for one worker, the highest priority first, then the earliest.
--
-- Params:  queues, slots (of each queue, in the order of serving), free (of all together), tasks (known names),
--          here (ids whose earlier run is still ending in this worker), worker, token (random, this claim's own)
-- Returns: rows (looked_at, job …), one with nulls when there was nothing
-- Locks:   the rows it takes, with SKIP LOCKED: claims never wait for each other, nor for a caller's transaction
-- Index:   jobs_claim. Each queue by equality (an array would sort the backlog), and each priority level in use by
--          equality too: behind "priority desc" alone, "run_at <= now()" would walk the future rows of every higher
--          level. `level` hops from one level in use to the next; it is read only as far as rows are still wanted.
-- Races:   a row changed since the snapshot is locked in its new version, whose ctid this snapshot cannot see: it is
--          not updated, and stays for the next look.
with candidate as materialized (
    select found.ctid
    from unnest(%(queues)s::text[], %(slots)s::integer[]) as wanted (queue, slots)
    cross join lateral (
        with recursive level (priority) as (
            (
                select j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = wanted.queue
                order by j.priority desc
                limit 1
            )
            union all
            select (
                select j.priority
                from asyncq.jobs j
                where j.state = 'available' and j.queue = wanted.queue and j.priority < level.priority
                order by j.priority desc
                limit 1
            )
            from level
            where level.priority is not null
        )
        select due.ctid
        from level
        cross join lateral (
            select j.ctid
            from asyncq.jobs j
            where j.state = 'available' and j.queue = wanted.queue and j.priority = level.priority
                and j.run_at <= now() and j.task = any(%(tasks)s::text[]) and j.id <> all(%(here)s::bigint[])
            order by j.run_at, j.id
            limit wanted.slots
            for update skip locked
        ) due
        limit wanted.slots
    ) found
    limit %(free)s::integer
),
claimed as (
    update asyncq.jobs j
    set state = 'running',
        attempts = least(j.attempts, 2147483646) + 1,
        locked_by = %(worker)s::text,
        lease_token = %(token)s::bigint,
        leased_until = now() + make_interval(secs => j.lease_seconds),
        attempted_at = now()
    where j.ctid = any(array(select candidate.ctid from candidate))
    returning
        j.id, j.queue, j.task, j.args::text as args, j.priority, j.attempts, j.max_attempts, j.lease_seconds,
        -- What Python's datetime cannot hold is brought to its ends.
        greatest(j.run_at, '0001-01-03 00:00+00') as run_at,
        least(greatest(j.created_at, '0001-01-03 00:00+00'), '9999-12-29 00:00+00') as created_at
)
select
    now() as looked_at, claimed.id, claimed.queue, claimed.task, claimed.args, claimed.priority, claimed.attempts,
    claimed.max_attempts, claimed.lease_seconds, claimed.run_at, claimed.created_at
from (values (true)) as always (looked)
left join claimed on true
order by array_position(%(queues)s::text[], claimed.queue), claimed.priority desc, claimed.run_at, claimed.id
