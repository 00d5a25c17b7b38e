"""Queues: a name, a policy and the tasks registered on it. A queue holds no connection and opens none."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import psycopg

from asyncq import ranges
from asyncq.db import history, inspect, jobs
from asyncq.db.connection import checked
from asyncq.db.explain import explain
from asyncq.db.statements import checked_schema
from asyncq.errors import ConfigurationError, InvalidArgsError, TaskAlreadyRegisteredError
from asyncq.job import EndedPage, Job, JobEvent, JobEventKind, JobPage, JobState, QueueStats
from asyncq.reason import Explanation
from asyncq.retry import Backoff, RetryPolicy
from asyncq.task import SyncTask, Task, TaskOptions, is_async, task_name

__all__ = ["Queue", "purged"]

P = ParamSpec("P")
R = TypeVar("R")

Connection = psycopg.AsyncConnection[Any]

LONGEST_TIMEOUT = timedelta(days=365)
SHORTEST_TIMEOUT = timedelta(milliseconds=1)
LONGEST_RETENTION = timedelta(days=36_500)


# A coroutine function is a function too, so the first overload of each pair lies within the second. It is tried first.
class Decorator(Protocol):
    """What `queue.task(…)` gives: it makes a `Task` of an `async def`, a `SyncTask` of a `def`."""

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, handler: Callable[P, R], /) -> SyncTask[P, R]: ...


class Queue:
    """Declare a queue, and register tasks on it with `@queue.task`.

    Policy set here holds for all its tasks; a task, and `options()` of a call, can set their own. Two queues of one
    name in one worker are refused: put tasks of several modules on one shared `Queue`.

    Args:
        name: 1 to 128 characters, no control characters.
        max_attempts: runs before a failing job is discarded, 1 to 32,767.
        retry: when a failed job runs again, a `RetryPolicy` or a function of (attempts, exception) giving a timedelta.
        lease: how long a job is held without a heartbeat before it is taken for lost, 0.5 seconds to 7 days. Workers
            beat at a third of it, so it bounds how late a crash is noticed, not how long a job may run.
        weight: the share of a worker's free slots when several queues have work, 1 to 1,000.
        retention: how long discarded and cancelled jobs are kept, 0 to 36,500 days.
        history: how long what became of its jobs is kept, those that succeeded included: for `timeline` and `ended`, 1
            to 36,500 days. It costs a row more for each run that ends. None keeps nothing.
        schema: the database schema that `asyncq migrate` made.

    Raises:
        ConfigurationError: a value is of another type or out of range.

    >>> emails = Queue("emails", max_attempts=5)
    >>> @emails.task(name="emails.send")
    ... async def send(address: str) -> None: ...
    >>> send
    <Task 'emails.send' of queue 'emails'>
    """

    def __init__(
        self,
        name: str = "default",
        *,
        max_attempts: int = 10,
        retry: RetryPolicy | Backoff | None = None,
        lease: timedelta = timedelta(seconds=60),
        weight: int = 1,
        retention: timedelta = timedelta(days=14),
        history: timedelta | None = None,
        schema: str = "asyncq",
    ) -> None:
        self.name = ranges.name("Queue(name)", name, ConfigurationError)
        self.max_attempts = ranges.whole_number(
            "Queue(max_attempts=)", max_attempts, ranges.MAX_ATTEMPTS, ConfigurationError
        )
        self.retry = _policy("Queue(retry=)", retry) or RetryPolicy()
        self.lease = _lease("Queue(lease=)", lease)
        self.weight = ranges.whole_number("Queue(weight=)", weight, (1, 1_000), ConfigurationError)
        self.retention = ranges.duration("Queue(retention=)", retention, ConfigurationError, longest=LONGEST_RETENTION)
        self.history = history
        if history is not None:
            ranges.duration(
                "Queue(history=)", history, ConfigurationError, shortest=timedelta(days=1), longest=LONGEST_RETENTION
            )
        self.schema = checked_schema(schema)
        self.tasks: dict[str, Task[..., Any]] = {}
        """The tasks by name, aliases included."""

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @overload
    def task(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def task(self, handler: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        timeout: timedelta | None = None,
        retry: RetryPolicy | Backoff | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
        lease: timedelta | None = None,
    ) -> Decorator: ...
    def task(self, handler: Any = None, **options: Any) -> Any:
        """Register a function as a task of this queue: `@queue.task` or `@queue.task(…)`.

        The function's parameters need annotations that survive JSON; `*args` and `**kwargs` are refused. An `async
        def` runs in the worker's event loop, a `def` in one of its threads.

        Args:
            handler: the function, when used without parentheses.
            name: what rows call the task; otherwise module and function.
            aliases: earlier names whose jobs this task runs too, for renames.
            timeout: how long one run may take, 1 millisecond to 365 days; None, as long as it likes. An `async def` is
                cancelled then. A thread cannot be: its job stays held until the thread ends, and then has failed.
            retry: as for the queue.
            max_attempts: as for the queue.
            priority: of its jobs, -32,768 to 32,767; higher runs first.
            lease: as for the queue.

        Raises:
            ConfigurationError: the function or an option cannot be used; the message says why.
            TaskAlreadyRegisteredError: this queue has a task of that name.

        >>> emails = Queue("emails")
        >>> @emails.task(name="emails.send", timeout=timedelta(seconds=30))
        ... async def send(address: str) -> None: ...
        >>> list(emails.tasks)
        ['emails.send']
        """
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise ConfigurationError(
                f"task() has no option {unknown[0]!r}: it has {', '.join(sorted(_OPTIONS))};"
                " delay, run_at and queue belong to a call, task.options(...)"
            )
        if handler is not None:
            return self._register(handler, **options)

        def decorate(function: Callable[..., object]) -> Task[..., Any]:
            return self._register(function, **options)

        return decorate

    def _register(
        self,
        handler: Callable[..., object],
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        timeout: timedelta | None = None,
        retry: RetryPolicy | Backoff | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
        lease: timedelta | None = None,
    ) -> Task[..., Any]:
        if isinstance(handler, Task):
            raise ConfigurationError(f"{handler!r} is a task already: register its function, {handler.name}.handler")
        kind: Any = Task if is_async(handler) else SyncTask
        name = ranges.name("task(name=)", task_name(handler) if name is None else name, ConfigurationError)
        if isinstance(aliases, str) or not isinstance(aliases, Iterable):
            raise ConfigurationError(f"task(aliases=) must be several names, such as a list, not {aliases!r:.100}")
        earlier = tuple(ranges.name("task(aliases=)", alias, ConfigurationError) for alias in aliases)
        if timeout is not None:
            ranges.duration(
                "task(timeout=)", timeout, ConfigurationError, shortest=SHORTEST_TIMEOUT, longest=LONGEST_TIMEOUT
            )
        settings = TaskOptions(
            queue=self.name,
            schema=self.schema,
            max_attempts=self.max_attempts
            if max_attempts is None
            else ranges.whole_number("task(max_attempts=)", max_attempts, ranges.MAX_ATTEMPTS, ConfigurationError),
            priority=ranges.whole_number("task(priority=)", priority, ranges.PRIORITIES, ConfigurationError),
            lease=self.lease if lease is None else _lease("task(lease=)", lease),
            timeout=timeout,
            retry=_policy("task(retry=)", retry) or self.retry,
        )
        task: Task[..., Any] = kind(handler, name=name, aliases=earlier, settings=settings)
        for known_as in (name, *earlier):
            if known_as in self.tasks:
                raise TaskAlreadyRegisteredError(
                    f"queue {self.name!r} has a task {known_as!r} already: give one of the two a name="
                )
        self.tasks.update(dict.fromkeys((name, *earlier), task))
        return task

    async def explain(self, connection: Connection, job_id: int) -> Explanation:
        """Tell why a job does not run, or where it stands: `print(await queue.explain(conn, 17))`.

        It reads neither arguments nor, without the right to, errors; a role that may only look can ask.

        Args:
            connection: whose transaction's view is shown.
            job_id: of a job of this queue or of another one in its schema.

        Raises:
            InvalidArgsError: `job_id` is no id.
        """
        ranges.whole_number("explain(job_id)", job_id, (1, 2**63 - 1), InvalidArgsError)
        return await explain(checked(connection), self.schema, job_id)

    async def timeline(self, connection: Connection, job_id: int) -> list[JobEvent]:
        """Tell how the runs of a job ended, the first first, of a queue that keeps `history`.

        Args:
            connection: whose transaction's view is shown.
            job_id: of a job of this queue or of another one in its schema; it need not be there any more.

        Raises:
            InvalidArgsError: `job_id` is no id.
        """
        ranges.whole_number("timeline(job_id)", job_id, ranges.IDS, InvalidArgsError)
        return await history.timeline(checked(connection), self.schema, job_id)

    async def ended(
        self,
        connection: Connection,
        *,
        event: JobEventKind | str | None = None,
        task: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> EndedPage:
        """List jobs that have ended, the newest first, a page at a time, of a queue that keeps `history`.

        One call reads at most 100,000 events, of all queues, from the newest jobs on. So a page can be short, or
        empty, with more to come: go on while its `before` is not None.

        Args:
            connection: whose transaction's view is shown.
            event: only those that ended so: "completed", "discarded" or "cancelled".
            task: only those of this name.
            before: only those with a lower id: the `before` of the page before.
            limit: about how many at most, 1 to 100,000.

        Raises:
            InvalidArgsError: one of these is of another type or out of range.
        """
        return await history.ended(
            checked(connection),
            self.schema,
            queue=self.name,
            event=None if event is None else _end("ended(event=)", event),
            task=None if task is None else ranges.name("ended(task=)", task, InvalidArgsError),
            before=None
            if before is None
            else ranges.whole_number("ended(before=)", before, ranges.IDS, InvalidArgsError),
            limit=ranges.whole_number("ended(limit=)", limit, (1, 100_000), InvalidArgsError),
        )

    async def discarded(self, connection: Connection, *, limit: int = 100) -> list[Job]:
        """List the dead letters, the latest first: jobs whose attempts are used up, with their last error.

        Args:
            connection: whose transaction's view is shown.
            limit: how many at most, 1 to 100,000.

        Raises:
            InvalidArgsError: the limit is of another type or out of range.
            TypeError: `connection` is no psycopg.AsyncConnection.
        """
        ranges.whole_number("discarded(limit=)", limit, (1, 100_000), InvalidArgsError)
        return await jobs.discarded(checked(connection), self.schema, queue=self.name, limit=limit)

    async def replay(self, connection: Connection, ids: Sequence[int] | None = None) -> list[int]:
        """Put dead letters back with all their attempts, as part of the transaction that `connection` is in.

        Args:
            connection: as for `defer`.
            ids: which ones, discarded or cancelled; ids of other queues, of jobs in other states and repeated ones
                are passed over. None replays every discarded job of this queue.

        Returns:
            The ids that were put back, ascending.

        Raises:
            InvalidArgsError: `ids` holds something that is no id.
        """
        if ids is not None:
            ids = ranges.ids("replay(ids=)", ids, InvalidArgsError)
        return await jobs.replay(checked(connection), self.schema, queue=self.name, ids=ids)

    async def stats(self, connection: Connection) -> QueueStats:
        """Count the jobs of this queue by where they stand, without reading more than `QueueStats.LIMIT` of each.

        Args:
            connection: whose transaction's view is shown.
        """
        [found] = await inspect.stats(checked(connection), self.schema, queues=[self.name])
        return found

    @staticmethod
    async def stats_of_all(connection: Connection, *, schema: str = "asyncq") -> list[QueueStats]:
        """Count the jobs of all queues that have some, by name, in one statement.

        Args:
            connection: as for `stats`.
            schema: the database schema that `asyncq migrate` made.

        Raises:
            ConfigurationError: no schema can have this name.
        """
        return await inspect.stats(checked(connection), checked_schema(schema), queues=None)

    async def jobs(
        self,
        connection: Connection,
        *,
        state: JobState | str | None = None,
        task: str | None = None,
        older_than: timedelta | None = None,
        args: Mapping[str, object] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> JobPage:
        """List jobs, the newest first, a page at a time.

        One call reads at most 100,000 jobs, of all queues, from the newest on; what a filter passes over has been read
        too. So a page can be short, or empty, with more to come: go on while its `before` is not None. Running jobs are
        found by an index of their own, and `discarded` lists dead letters by another one.

        Args:
            connection: whose transaction's view is shown.
            state: only such.
            task: only those of this name.
            older_than: only those deferred so long ago; newer ones are passed over one by one.
            args: only those whose arguments contain these, as `@>` of jsonb has it: `{"user_id": 17}`. The dearest
                filter: the arguments of all that the others let through are read.
            before: only those with a lower id: the `before` of the page before.
            limit: how many at most, 1 to 100,000.

        Raises:
            InvalidArgsError: one of these is of another type or out of range, or JSON does not hold the arguments.

        Example::

            found, before = await emails.jobs(conn, state="available", args={"user_id": 17})
            while before is not None:
                more, before = await emails.jobs(conn, state="available", args={"user_id": 17}, before=before)
                found += more
        """
        return await inspect.page(
            checked(connection),
            self.schema,
            queue=self.name,
            limit=ranges.whole_number("jobs(limit=)", limit, (1, 100_000), InvalidArgsError),
            before=None
            if before is None
            else ranges.whole_number("jobs(before=)", before, ranges.IDS, InvalidArgsError),
            state=None if state is None else _state("jobs(state=)", state, list(JobState)),
            task=None if task is None else ranges.name("jobs(task=)", task, InvalidArgsError),
            older_than=None
            if older_than is None
            else ranges.duration("jobs(older_than=)", older_than, InvalidArgsError),
            args=None if args is None else _contained("jobs(args=)", args),
        )

    async def run_now(self, connection: Connection, ids: Iterable[int]) -> list[int]:
        """Let jobs that wait for a later time run now, as part of the transaction that `connection` is in.

        Args:
            connection: as for `defer`.
            ids: which ones; those of other queues, of jobs that are due, run or have ended, and those that a worker
                takes at this moment, are passed over.

        Returns:
            The ids of those that were changed, ascending.

        Raises:
            InvalidArgsError: `ids` holds something that is no id.
        """
        wanted = ranges.ids("run_now(ids)", ids, InvalidArgsError)
        return await inspect.run_now(checked(connection), self.schema, queue=self.name, ids=wanted)

    async def cancel(self, connection: Connection, ids: Iterable[int]) -> list[int]:
        """Cancel jobs that wait, as part of the transaction that `connection` is in. They can be replayed.

        Args:
            connection: as for `defer`.
            ids: which ones; those of other queues, of jobs that run or have ended, and those that a worker takes at
                this moment, are passed over.

        Returns:
            The ids of those that were cancelled, ascending.

        Raises:
            InvalidArgsError: `ids` holds something that is no id.
        """
        wanted = ranges.ids("cancel(ids)", ids, InvalidArgsError)
        return await inspect.cancel(
            checked(connection), self.schema, queue=self.name, ids=wanted, reason="cancelled by an operator"
        )

    async def purge(
        self,
        connection: Connection,
        *,
        state: JobState | str | None = None,
        older_than: timedelta = timedelta(0),
    ) -> int:
        """Delete jobs that ended without success, 10,000 a statement, until none is left.

        All is part of the transaction that `connection` is in; in autocommit each statement is one of its own. What
        somebody else is just replaying is passed over.

        Args:
            connection: as for `defer`.
            state: only `discarded` or only `cancelled` ones; None, both.
            older_than: only those that ended so long ago.

        Returns:
            How many were deleted.

        Raises:
            InvalidArgsError: the state or the duration cannot be.
        """
        chosen, age = purged("purge", state, older_than)
        return await inspect.purge(checked(connection), self.schema, queue=self.name, state=chosen, older_than=age)


_OPTIONS = {"name", "aliases", "timeout", "retry", "max_attempts", "priority", "lease"}


def _policy(what: str, given: object) -> RetryPolicy | None:
    if given is None or isinstance(given, RetryPolicy):
        return given
    if callable(given) and not isinstance(given, type):
        backoff: Any = given
        return RetryPolicy(backoff=backoff)
    raise ConfigurationError(f"{what} must be a RetryPolicy or a function, not {given!r:.100}")


def _lease(what: str, given: object) -> timedelta:
    return ranges.duration(
        what, given, ConfigurationError, shortest=ranges.SHORTEST_LEASE, longest=ranges.LONGEST_LEASE
    )


ENDED = [JobState.DISCARDED, JobState.CANCELLED]


def purged(what: str, state: object, older_than: object) -> tuple[JobState | None, timedelta]:
    """Say what a purge is to delete.

    Raises:
        InvalidArgsError: the state is none that a job ends in, or the duration cannot be.
    """
    chosen = None if state is None else _state(f"{what}(state=)", state, ENDED)
    return chosen, ranges.duration(f"{what}(older_than=)", older_than, InvalidArgsError)


def _state(what: str, given: object, allowed: Sequence[JobState]) -> JobState:
    for state in allowed:
        if given == state:
            return state
    raise InvalidArgsError(f"{what} must be one of {', '.join(allowed)}, not {given!r:.100}")


def _end(what: str, given: object) -> JobEventKind:
    ends = (JobEventKind.COMPLETED, JobEventKind.DISCARDED, JobEventKind.CANCELLED)
    for event in ends:
        if given == event:
            return event
    raise InvalidArgsError(f"{what} must be one of {', '.join(ends)}, not {given!r:.100}")


def _contained(what: str, given: object) -> str:
    if not isinstance(given, Mapping):
        raise InvalidArgsError(f"{what} must be a mapping by parameter name, such as {{'user_id': 17}}")
    named: Mapping[Any, Any] = given  # pyright: ignore[reportUnknownVariableType] - of any keys
    return ranges.storable(what, dict(named), InvalidArgsError)
