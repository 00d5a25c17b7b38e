-- Note how long queues keep their history.
--
-- Params:  queues, seconds (of each; null: it keeps none)
-- Returns: one row: how many were changed
-- Locks:   their rows, in the order of their names
-- Index:   primary key
with changed as (
    insert into asyncq.queues as q (name, history)
    select given.name, make_interval(secs => given.seconds)
    from unnest(%(queues)s::text[], %(seconds)s::float8[]) as given (name, seconds)
    left join asyncq.queues known on known.name = given.name
    where known.name is null or known.history is distinct from make_interval(secs => given.seconds)
    order by given.name
    on conflict (name) do update set history = excluded.history
    returning 1
)
select count(*) from changed
