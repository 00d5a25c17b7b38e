"""Tasks: a handler, its arguments and options, and the verbs that put its jobs in.

A task connects to nothing. `defer` works on the caller's connection and inside the caller's transaction: it validates
first, then runs one INSERT, and it never commits, rolls back or changes a setting.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import psycopg
from anyio.lowlevel import checkpoint

from asyncq import ranges
from asyncq.args import Arguments
from asyncq.db import defer
from asyncq.db.connection import checked
from asyncq.db.defer import Stored
from asyncq.errors import ConfigurationError, InvalidArgsError
from asyncq.retry import RetryPolicy
from asyncq.tracing import Sending

__all__ = ["BoundTask", "Deferred", "SyncTask", "Task", "TaskArgs", "TaskOptions", "task_name"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Connection = psycopg.AsyncConnection[Any]

BATCH_ITEMS = 2_000
"""Jobs in one INSERT of `defer_many`."""

BATCH_CHARACTERS = 4_000_000
"""Characters of arguments after which an INSERT of `defer_many` takes no more."""

TURN_ITEMS = 100
"""Jobs that `defer_many` reads before others on the event loop have their turn, a fraction of a millisecond's work."""


@dataclass(frozen=True, slots=True)
class Deferred(Generic[R_co]):
    """A job that was put in. It exists once the caller's transaction commits, and only then.

    Attributes:
        id: the job's, the same for all its attempts.
        task: the name of its task.
        queue: the name of its queue.
        run_at: not started before this time, of the database's clock; those beyond the years 1 to 9999 are brought to
            these ends.

    >>> from datetime import UTC
    >>> Deferred(17, "shop.send_receipt", "emails", datetime(2030, 1, 31, tzinfo=UTC)).id
    17
    """

    id: int
    task: str
    queue: str
    run_at: datetime


class TaskArgs(NamedTuple, Generic[P]):
    """The arguments of one job of `task`, validated: made by `Task.args`, taken by `defer_many`."""

    task: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How the jobs of a task are put in and run, settled at registration."""

    queue: str
    schema: str
    max_attempts: int
    priority: int
    lease: timedelta
    timeout: timedelta | None
    retry: RetryPolicy


class Deferrable(Generic[P, R]):
    """What jobs can be put in through: a task, or a task with options."""

    name: str
    arguments: Arguments
    schema: str
    stored: Stored

    async def defer(self, connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> Deferred[R]:
        """Put one job in, as part of the transaction that `connection` is in.

        The job is there if, and only if, this transaction commits; workers are woken at its commit. Arguments are
        validated before anything is sent, so a refused call leaves the transaction usable. On an autocommit
        connection the job is there at once. It is one round trip; nothing is committed, rolled back or set.

        Raises:
            InvalidArgsError: the arguments do not fit the handler, or would not arrive equal and of the same type.
            psycopg.Error: as the server or the connection raised it.
        """
        checked(connection)
        text = self.arguments.dump(args, kwargs)
        with Sending(self.stored.queue, self.name, many=False) as sending:
            job_id, run_at = await defer.one(connection, self.schema, self.stored, text, sending.text)
            sending.job_ids = (job_id,)
        return Deferred(job_id, self.name, self.stored.queue, run_at)

    async def defer_many(self, connection: Connection, calls: Iterable[TaskArgs[P]], /) -> list[int]:
        """Put many jobs in, all or none, and give their ids in the order of `calls`.

        `calls` is read as it is sent, so a generator of a million items takes little memory; it is read while the
        server works on what was read before, and the event loop has its turns between. All or none holds also on an
        autocommit connection, and when `calls` itself raises half-way: what was sent before is undone and the
        transaction is usable.

        Args:
            connection: as for `defer`.
            calls: what `args` of this same task made.

        Raises:
            InvalidArgsError: something in `calls` is not of this task.
            psycopg.Error: as the server or the connection raised it.
        """
        checked(connection)
        with Sending(self.stored.queue, self.name, many=True) as sending:
            ids = sending.job_ids = await self._defer_many(connection, iter(calls), sending.text)
        return ids

    async def _defer_many(self, connection: Connection, given: Iterator[TaskArgs[P]], headers: str | None) -> list[int]:
        first, more = await self._batch(given)
        if not more:
            return await defer.few(connection, self.schema, self.stored, first, headers) if first else []

        async def following() -> list[str]:
            batch, _ = await self._batch(given)
            return batch

        return await defer.many(connection, self.schema, self.stored, first, following, headers=headers)

    async def _batch(self, calls: Iterator[TaskArgs[P]]) -> tuple[list[str], bool]:
        """Read as many calls as one INSERT takes; says whether there may be more."""
        batch: list[str] = []
        characters = 0
        name = self.name
        for call in calls:
            if not isinstance(call, TaskArgs) or call.task != name:
                raise InvalidArgsError(
                    f"defer_many of task {name!r} takes what its own args() makes, not {call!r:.200}"
                )
            text = call.text
            batch.append(text)
            characters += len(text)
            if not len(batch) % TURN_ITEMS:
                # Others on the event loop have their turn, the statement that is under way first of all.
                await checkpoint()
            if len(batch) >= BATCH_ITEMS or characters >= BATCH_CHARACTERS:
                return batch, True
        return batch, False


class BoundTask(Deferrable[P, R]):
    """A task with options for the jobs put in through it: what `Task.options` gives."""

    def __init__(self, name: str, arguments: Arguments, schema: str, stored: Stored) -> None:
        self.name = name
        self.arguments = arguments
        self.schema = schema
        self.stored = stored


class Task(Deferrable[P, R]):
    """A handler registered by `@queue.task`: call it as before, or put its jobs in with `defer`.

    Attributes:
        name: what the job's row says; workers look the handler up by it.
        aliases: earlier names, whose jobs this task runs too.
        handler: the function itself.
        settings: how its jobs are put in and run.
    """

    def __init__(
        self, handler: Callable[P, object], *, name: str, aliases: tuple[str, ...], settings: TaskOptions
    ) -> None:
        self.name = name
        self.aliases = aliases
        self.handler = handler
        self.settings = settings
        self.arguments = Arguments.of(handler, task=name)
        self.schema = settings.schema
        self.stored = Stored(
            queue=settings.queue,
            task=name,
            priority=settings.priority,
            run_at=None,
            delay_seconds=0.0,
            max_attempts=settings.max_attempts,
            lease_seconds=settings.lease.total_seconds(),
        )
        functools.update_wrapper(self, handler)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the handler itself, here and now, as if it were not decorated."""
        called: Any = self.handler(*args, **kwargs)
        return called

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of queue {self.settings.queue!r}>"

    def args(self, *args: P.args, **kwargs: P.kwargs) -> TaskArgs[P]:
        """Validate the arguments of one job, for `defer_many`.

        Raises:
            InvalidArgsError: as `defer`.

        >>> from asyncq import Queue
        >>> @Queue("emails").task(name="send")
        ... async def send(order_id: int) -> None: ...
        >>> send.args(7)
        TaskArgs(task='send', text='{"order_id":7}')
        """
        return TaskArgs(self.name, self.arguments.dump(args, kwargs))

    def options(
        self,
        *,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
    ) -> BoundTask[P, R]:
        """Choose how the next jobs are put in; what is left out stays as the task has it.

        Args:
            delay: start this much later than the statement that puts the job in, 0 to 36,500 days.
            run_at: start at this time, which has a time zone. One in the past means now. Not with `delay`.
            priority: higher runs first, -32,768 to 32,767.
            queue: the name of another queue, 1 to 128 characters.
            max_attempts: 1 to 32,767.

        Raises:
            InvalidArgsError: a value is of another type or out of range.

        >>> from asyncq import Queue
        >>> @Queue("emails").task(name="send")
        ... async def send(order_id: int) -> None: ...
        >>> send.options(delay=timedelta(hours=1), priority=5).name
        'send'
        >>> send.options(priority=40_000)
        Traceback (most recent call last):
        ...
        asyncq.errors.InvalidArgsError: options(priority=) must be a whole number from -32,768 to 32,767, not 40,000
        """
        changes: dict[str, Any] = {}
        if delay is not None and run_at is not None:
            raise InvalidArgsError("options() takes delay= or run_at=, not both")
        if delay is not None:
            changes["delay_seconds"] = ranges.duration("options(delay=)", delay, InvalidArgsError).total_seconds()
        if run_at is not None:
            changes["run_at"] = ranges.aware("options(run_at=)", run_at, InvalidArgsError)
        if priority is not None:
            changes["priority"] = ranges.whole_number(
                "options(priority=)", priority, ranges.PRIORITIES, InvalidArgsError
            )
        if queue is not None:
            changes["queue"] = ranges.name("options(queue=)", queue, InvalidArgsError)
        if max_attempts is not None:
            changes["max_attempts"] = ranges.whole_number(
                "options(max_attempts=)", max_attempts, ranges.MAX_ATTEMPTS, InvalidArgsError
            )
        return BoundTask(self.name, self.arguments, self.schema, replace(self.stored, **changes))


class SyncTask(Task[P, R]):
    """A task whose handler is a plain `def`: workers run it in a thread, calling it gives its result."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # a thread's handler gives its result, not a coroutine
        """Call the handler itself, here and now, as if it were not decorated."""
        called: Any = self.handler(*args, **kwargs)
        return called


def task_name(handler: Callable[..., object]) -> str:
    """Give the name a task has unless it is given one: module and function.

    In a program that is run as `__main__` the file's stem, or what followed `python -m`, stands for the module, so
    that the name is the same when a worker imports the file.

    Raises:
        ConfigurationError: a lambda, a local function or another callable has no name that a worker could find.
    """
    qualified = getattr(handler, "__qualname__", "")
    if not qualified or "<" in qualified:
        raise ConfigurationError(
            f"{handler!r:.200} is no function at the top of a module, so the task needs a name: task(name='...')"
        )
    module = handler.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif getattr(main, "__file__", None):
            module = Path(str(main.__file__)).stem
    return f"{module}.{qualified}"


def is_async(handler: Any) -> bool:
    """Say whether a handler runs in the event loop.

    Raises:
        ConfigurationError: it is no function, or a generator.
    """
    if not callable(handler) or inspect.isclass(handler):
        raise ConfigurationError(f"a task's handler must be a function, not {handler!r:.200}")
    called: Any = handler
    if not inspect.isroutine(handler) and not isinstance(handler, functools.partial):
        called = type(handler).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigurationError(f"a task's handler must not be a generator: {handler!r:.200}")
    return inspect.iscoroutinefunction(called)
