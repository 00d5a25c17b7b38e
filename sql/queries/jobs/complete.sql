-- Write successes: delete the rows. The hot half of `finish`, with nothing in it that only failures need.
--
-- Params:  ids, tokens (pairwise: the claim under which each ran)
-- Returns: rows (id, token, busy) of those not written: busy, somebody's open transaction holds the row, try again;
--          otherwise lost, the run was taken away and its outcome counts for nothing
-- Locks:   the rows, with SKIP LOCKED: one held row does not hold up the batch
-- Index:   primary key. The state is not asked for: it would invite the planner to walk the whole running index.
-- Races:   after a heartbeat between snapshot and lock the row is locked in its new version, whose ctid this snapshot
--          cannot see: it is reported busy, and written by the next try.
with
-- include retired
select
    given.id, given.token,
    -- Not "exists", which may be answered from a hash of the whole table.
    coalesce((select true from asyncq.jobs j where j.id = given.id and j.lease_token = given.token), false)
from given
where (select count(*) from retired) < (select count(*) from given)
    -- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
    and (given.id, given.token) not in (select retired.id, retired.lease_token from retired)
