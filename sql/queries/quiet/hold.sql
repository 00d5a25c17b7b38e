-- Change what this session holds of the locks by which senders see whether to notify; see `asyncq.worker.quiet`.
--
-- Params:  queues, held, wanted (each of each queue: nothing, shared or exclusive)
-- Returns: rows (queue, got). What is not got leaves nothing held.
-- Locks:   advisory, of the session, one for each queue; tried and never waited for
-- Note:    from exclusive to shared there is no moment without: nobody else can keep the queue in between. The cases
--          say in which order it is done; that of other expressions is the server's to choose.
select
    given.queue,
    case given.wanted
        when 'shared' then
            case when pg_try_advisory_lock_shared(given.key)
                then case when given.held = 'exclusive' then pg_advisory_unlock(given.key) else true end
                else false
            end
        when 'exclusive' then
            case when case when given.held = 'shared' then pg_advisory_unlock_shared(given.key) else true end
                then pg_try_advisory_lock(given.key)
                else false
            end
        else
            case given.held
                when 'shared' then pg_advisory_unlock_shared(given.key)
                when 'exclusive' then pg_advisory_unlock(given.key)
                else true
            end
    end as got
from (
    select change.queue, change.held, change.wanted, hashtextextended(btrim('asyncq.', '".') || '.' || change.queue, 7) as key
    from unnest(%(queues)s::text[], %(held)s::text[], %(wanted)s::text[]) as change (queue, held, wanted)
) given
