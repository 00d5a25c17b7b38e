-- Give back what claims took whose answer never came: those runs have not begun.
--
-- Params:  tokens (of these claims)
-- Returns: one row: how many were given back
-- Locks:   the rows, with SKIP LOCKED
-- Index:   jobs_running. Only run after a connection was lost in mid-claim.
-- Races:   a claim that the server is still at is not seen; it is given back by the next call, or rescued.
with doubtful as materialized (
    select j.ctid
    from asyncq.jobs j
    where j.state = 'running' and j.lease_token = any(%(tokens)s::bigint[])
    for update skip locked
),
released as (
    update asyncq.jobs j
    set state = 'available',
        attempts = greatest(j.attempts - 1, 0),
        locked_by = null,
        leased_until = null,
        lease_token = null
    where j.ctid = any(array(select doubtful.ctid from doubtful))
    returning j.queue
),
notified as (
    -- Announced as put back into their old places.
    select pg_notify(btrim('asyncq.', '".'), chr(1) || waiting.queue)
    from (select distinct released.queue from released) waiting
)
select (select count(*) from released), (select count(*) from notified)
