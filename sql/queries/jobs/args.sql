-- Read the arguments of one job that its claim left out because they are large.
--
-- Params:  id, token (the claim under which it runs), most (bytes)
-- Returns: a row (bytes, args): args is null when it is longer than that; no row when the lease is lost
-- Locks:   none
-- Index:   primary key
-- Races:   whoever has lost the lease since does not learn it here, but from the next heartbeat
select octet_length(given.args), case when octet_length(given.args) <= %(most)s::integer then given.args end
from (
    select j.args::text as args
    from asyncq.jobs j
    where j.id = %(id)s::bigint and j.lease_token = %(token)s::bigint
    -- The text is made once, not for each mention.
    offset 0
) given
