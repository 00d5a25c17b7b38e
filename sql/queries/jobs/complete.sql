-- Write successes: delete the rows. The hot half of `finish`, with nothing in it that only failures need.
--
-- Params:  ids, tokens (pairwise: the claim under which each ran)
-- Returns: rows (id, token, busy) of those not written: busy, somebody's open transaction holds the row, try again;
--          otherwise lost, the run was taken away and its outcome counts for nothing
-- Locks:   the rows, with SKIP LOCKED: one held row does not hold up the batch
-- Index:   primary key. The state is not asked for: it would invite the planner to walk the whole running index.
-- Races:   a heartbeat between snapshot and lock leaves a newer version of the row; the join on id follows to it.
--          Written is only what the delete returned.
with given as (
    select * from unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) as given (id, token)
),
held as materialized (
    select j.id, j.lease_token
    from given
    join asyncq.jobs j on j.id = given.id and j.lease_token = given.token
    for update of j skip locked
),
written as (
    delete from asyncq.jobs j
    using held
    where j.id = held.id and j.lease_token = held.lease_token
    returning j.id, held.lease_token
)
select
    given.id, given.token,
    exists (select 1 from asyncq.jobs j where j.id = given.id and j.lease_token = given.token)
from given
-- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
where (given.id, given.token) not in (select written.id, written.lease_token from written)
