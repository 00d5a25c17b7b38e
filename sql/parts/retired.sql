-- Delete the rows of runs that succeeded and are still held: ids, tokens.
-- include held,
retired as (
    delete from asyncq.jobs j
    where j.ctid = any(array(select held.ctid from held))
    returning j.id, j.lease_token
)
