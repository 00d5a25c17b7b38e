-- Let jobs that wait for a later time run now, and wake the workers of their queue at commit.
--
-- Params:  queue, ids
-- Returns: one row: the ids that were changed, ascending
-- Locks:   the rows, in the order of their ids: two such commands wait for each other and never dead-lock
-- Index:   primary key. The state is not asked for: it would invite the planner to walk over all that waits. What has
--          neither a lease nor an end is available.
-- Races:   a claim since the snapshot: the conditions are looked at again under the lock, and the job is passed over. A
--          claim after it skips the row until this transaction ends.
with given as (
    select distinct unnest(%(ids)s::text::bigint[]) as id order by 1
),
chosen as materialized (
    select chosen.id
    from given
    cross join lateral (
        select j.id
        from asyncq.jobs j
        where j.id = given.id and j.queue = %(queue)s::text and j.lease_token is null and j.finished_at is null
            -- What is due keeps its place in the line.
            and j.run_at > clock_timestamp()
        for update
    ) chosen
),
changed as (
    update asyncq.jobs j
    set run_at = clock_timestamp()
    where j.id = any(array(select chosen.id from chosen))
    returning j.id
),
notified as (
    -- The time is the clock's, under this statement's lock on the table, as with jobs that are put in: workers have not
    -- read on from there.
    select pg_notify(btrim('asyncq.', '".'), %(queue)s::text) from changed limit 1
)
select coalesce(array_agg(changed.id order by changed.id), '{}'), (select count(*) from notified) from changed
