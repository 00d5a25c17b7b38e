-- Extend the leases of the jobs that one worker holds.
--
-- Params:  ids, tokens (pairwise: the claim under which each is held)
-- Returns: rows (id, token, busy) of those not extended: busy, somebody's open transaction holds the row, try again;
--          otherwise lost, no row has this id and token any more
-- Locks:   the rows, with SKIP LOCKED
-- Index:   primary key, by parts/held.sql. A heartbeat changes no indexed column, so it stays on its page (HOT).
with
-- include held,
extended as (
    update asyncq.jobs j
    set leased_until = now() + make_interval(secs => j.lease_seconds)
    where j.ctid = any(array(select held.ctid from held))
    returning j.id, j.lease_token
)
select
    given.id, given.token,
    -- Not "exists", which may be answered from a hash of the whole table.
    coalesce((select true from asyncq.jobs j where j.id = given.id and j.lease_token = given.token), false)
from given
-- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
where (given.id, given.token) not in (select extended.id, extended.lease_token from extended)
