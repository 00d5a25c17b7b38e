-- Note that a worker lives, and whether it is stopping.
--
-- Params:  id, stopping
-- Returns: one row: whether it is there; if not, it has to be registered (again)
-- Locks:   its row, which nobody else writes
-- Index:   primary key
with seen as (
    update asyncq.workers w
    set seen_at = now(), stopping_at = case when %(stopping)s::boolean then coalesce(w.stopping_at, now()) end
    where w.id = %(id)s::text
    returning 1
)
select exists (select from seen)
