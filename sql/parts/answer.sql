-- What a claim answers, one kind of row after the other.
-- 2: a job taken, by priority, run_at and id.
(
    select
        claimed.kind, claimed.id, claimed.queue, claimed.task, claimed.args, claimed.priority, claimed.attempts,
        claimed.max_attempts, claimed.lease_seconds, claimed.run_at, claimed.created_at, claimed.headers,
        claimed.token
    from claimed
    order by claimed.priority desc, claimed.run_at, claimed.id
)
union all
-- 3: an outcome not written, with its token and, as attempts, whether the row is merely busy (1) or the lease lost (0).
select
    3::smallint, given.id, null, null, null, null,
    coalesce((select 1 from asyncq.jobs j where j.id = given.id and j.lease_token = given.token), 0),
    null, null, null, null, null, given.token
from given
where (select count(*) from retired) < (select count(*) from given)
    -- A hashed subplan: as "not exists" it would be a nested loop, these connections having switched hash joins off.
    and (given.id, given.token) not in (select retired.id, retired.lease_token from retired)
union all
-- 1: when this was looked, as run_at, and how long it took so far, in seconds, as lease_seconds. Always there, last.
select
    1::smallint, null, null, null, null, null, null, null,
    extract(epoch from clock_timestamp() - now())::float8, now(), null, null, null
