-- Delete the rows of runs that succeeded and are still held: ids, tokens.
given as (
    select * from unnest(%(ids)s::text::bigint[], %(tokens)s::text::bigint[]) as given (id, token)
),
held as materialized (
    select j.ctid
    from given
    join asyncq.jobs j on j.id = given.id and j.lease_token = given.token
    for update of j skip locked
),
retired as (
    delete from asyncq.jobs j
    where j.ctid = any(array(select held.ctid from held))
    returning j.id, j.lease_token
)
