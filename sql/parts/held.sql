-- Lock the rows of runs that are still held: ids, tokens (pairwise).
-- Rows are found each by itself, and changed by ctid, never by a join on the id: statistics from a moment in which the
-- table was empty make a walk over all of the primary key look as cheap as one row of it, and a burst then pays.
given as (
    select * from unnest(%(ids)s::text::bigint[], %(tokens)s::text::bigint[]) as given (id, token)
),
held as materialized (
    select held.ctid
    from given
    cross join lateral (
        select j.ctid from asyncq.jobs j where j.id = given.id and j.lease_token = given.token for update skip locked
    ) held
)
