-- Tell of runs: by worker, and whether their leases are kept.
--
-- Params:  none
-- Returns: rows (worker, kept, over, seconds): how many leases run and how many have run out, and since when the first
-- Locks:   none
-- Index:   jobs_running
select
    j.locked_by,
    count(*) filter (where j.leased_until >= now()),
    count(*) filter (where j.leased_until < now()),
    extract(epoch from now() - min(greatest(j.leased_until, '0001-01-01 00:00+00')) filter (where j.leased_until < now()))::float8
from asyncq.jobs j
where j.state = 'running'
group by j.locked_by
order by 1
