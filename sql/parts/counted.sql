-- Add up what was done since the last time: queues, tasks, completed, failed, snoozed, interrupted, cancelled, discarded,
-- waited_seconds, ran_seconds (pairwise). In one order, so that two workers wait for each other and never dead-lock.
counted as (
    insert into asyncq.activity as a (
        minute, queue, task, completed, failed, snoozed, interrupted, cancelled, discarded, waited_seconds, ran_seconds
    )
    select
        date_trunc('minute', now()), given.queue, given.task, given.completed, given.failed, given.snoozed,
        given.interrupted, given.cancelled, given.discarded, given.waited_seconds, given.ran_seconds
    from unnest(
        %(activity_queues)s::text::text[], %(activity_tasks)s::text::text[], %(completed)s::text::bigint[],
        %(failed)s::text::bigint[], %(snoozed)s::text::bigint[], %(interrupted)s::text::bigint[],
        %(cancelled)s::text::bigint[], %(discarded)s::text::bigint[], %(waited_seconds)s::text::float8[],
        %(ran_seconds)s::text::float8[]
    ) as given (
        queue, task, completed, failed, snoozed, interrupted, cancelled, discarded, waited_seconds, ran_seconds
    )
    order by given.queue, given.task
    on conflict (minute, queue, task) do update set
        completed = a.completed + excluded.completed,
        failed = a.failed + excluded.failed,
        snoozed = a.snoozed + excluded.snoozed,
        interrupted = a.interrupted + excluded.interrupted,
        cancelled = a.cancelled + excluded.cancelled,
        discarded = a.discarded + excluded.discarded,
        waited_seconds = a.waited_seconds + excluded.waited_seconds,
        ran_seconds = a.ran_seconds + excluded.ran_seconds
)
