-- Queues that keep history. They are few, so all are read.
kept as materialized (
    select q.name, q.history from asyncq.queues q where q.history is not null
)
