-- Give the latest failure of a job.
--
-- Params:  id
-- Returns: a row (last_error), or none
-- Index:   primary key
select j.last_error from asyncq.jobs j where j.id = %(id)s::bigint
