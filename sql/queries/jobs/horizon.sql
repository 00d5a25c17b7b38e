-- Say which transactions may still put jobs into the past, and what stands first in lanes that they cannot touch.
--
-- Params:  awaited (transactions, as given by an earlier call), approved (an instant)
--          lane_queues, lane_priorities, lane_times, lane_ids (a position in each), tasks (known names)
-- Returns: rows (place, looked_at, writers, over, run_at, id): the first, with a null place, has this statement's time,
--          the transactions that may commit jobs of an earlier run_at, and whether the awaited ones have ended; the
--          others, one a lane, its first available job of a known task behind the position and up to the instant
-- Locks:   none
-- Index:   jobs_claim
-- Note:    a job's run_at is taken from the clock under its transaction's lock on the table, so whoever can commit one
--          from before this statement holds that lock now. A transaction that was prepared has changed its name: while
--          there is one that holds the lock, nothing awaited counts as over.
with
-- include writers
select
    null::bigint as place, now() as looked_at,
    array(select writer.name from writer) as writers,
    not exists (select 1 from writer where writer.name = any(%(awaited)s::text::text[]) or writer.name like '-1/%%') as over,
    null::timestamptz as run_at, null::bigint as id
union all
select lane.place, null, null, null, first.run_at, first.id
from unnest(
    %(lane_queues)s::text::text[], %(lane_priorities)s::text::smallint[], %(lane_times)s::text::timestamptz[],
    %(lane_ids)s::text::bigint[]
) with ordinality as lane (queue, priority, run_at, id, place)
left join lateral (
    select j.run_at, j.id
    from asyncq.jobs j
    where j.state = 'available' and j.queue = lane.queue and j.priority = lane.priority
        and (j.run_at, j.id) > (lane.run_at, lane.id) and j.run_at <= %(approved)s::text::timestamptz
        and j.task = any(%(tasks)s::text::text[])
    order by j.run_at, j.id
    limit 1
) first on true
