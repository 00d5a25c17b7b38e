"""Run handlers: one plain asyncio task a job, outside any transaction, and end them when they must.

What comes in are claimed rows, what goes out are outcomes, put to the finisher. The invariant: every started run ends
in exactly one call of `_end`, whatever its handler does, and holds its slot until then.

Jobs are the one thing here that no anyio task group owns. A task group costs four times as much a job, and a handler
that swallows cancellation inside a cancelled anyio scope is cancelled again at every turn of the loop, at the cost of a
processor. A run is one `create_task` in an empty context, kept in `runs` until it ends; `Task.cancel()` is ordered
once and repeated each second for as long as the handler goes on.

A handler in a thread cannot be interrupted. It is told through `current_job().cancel_requested`, and its row stays
running and its lease extended until the thread has ended.
"""

import asyncio
import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from typing import Any

import anyio
import anyio.to_thread

from asyncq import running
from asyncq.args import UndecodableArgsError
from asyncq.db.jobs import ClaimedRow
from asyncq.errors import InvalidArgsError
from asyncq.events import Events, JobFinished, JobLeaseLost, JobStarted
from asyncq.job import Lease
from asyncq.outcome import (
    Change,
    Completed,
    Discarded,
    Interruption,
    Outcome,
    Released,
    Retried,
    change,
    decide,
    kind_of,
)
from asyncq.task import SyncTask, Task
from asyncq.worker.wakeup import Wakeup

__all__ = ["Executor", "Run"]

AGAIN_SECONDS = 1.0
"""How often a handler that goes on is told again to end."""


class Run:
    """One attempt at one job: what is needed to run it, to end it and to write what came out."""

    __slots__ = (
        "abandoned", "begun", "future", "in_thread", "interruption", "job", "row", "task", "timer", "token", "waited",
    )  # fmt: skip

    def __init__(self, row: ClaimedRow, token: int, task: Task[..., Any], waited: float) -> None:
        self.row = row
        self.token = token
        self.task = task
        self.waited = waited
        self.job = running.RunningJob(row)
        self.interruption: Interruption | None = None
        self.begun = False
        self.in_thread = isinstance(task, SyncTask)
        self.abandoned = False
        self.future: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def lease(self) -> Lease:
        """Under which it runs."""
        return Lease(self.row.id, self.token, self.row.lease_seconds)

    def __str__(self) -> str:
        row = self.row
        return f"job {row.id} ({row.task}, attempt {row.attempts} of {row.max_attempts})"


class Executor:
    """Hold the runs of one worker.

    Args:
        tasks: what this worker can run, by name.
        concurrency: how many at once.
        events: told of each start and end.
        large_args: reads arguments that a claim left out, None when the lease is lost.
        finish: takes the outcome of a run.
        freed: called when a slot is free again.
        lost_ended: takes the queue of a run that ended after its lease was lost.
        broke: takes an error of the machinery itself.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        concurrency: int,
        *,
        events: Events,
        large_args: Callable[[Lease], Awaitable[str | None]],
        finish: Callable[[Lease, Change], None],
        freed: Callable[[], None],
        lost_ended: Callable[[str], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self.runs: dict[int, Run] = {}
        self.begun = False
        """Whether any run has begun."""
        self._tasks = tasks
        self.concurrency = concurrency
        self._events = events
        self._large_args = large_args
        self._finish = finish
        self._freed = freed
        self._lost_ended = lost_ended
        self._broke = broke
        self._threads = anyio.CapacityLimiter(concurrency)
        self._ended = Wakeup()

    @property
    def free(self) -> int:
        """Slots that a claim may fill."""
        return self.concurrency - len(self.runs)

    def leases(self) -> list[Lease]:
        """The leases to be kept: those of all runs but the ones that lost theirs."""
        return [run.lease for run in self.runs.values() if run.interruption is not Interruption.LOST]

    def named(self, task: asyncio.Task[object]) -> str | None:
        """Name the job that an asyncio task runs, if it does. Any thread may ask."""
        for run in list(self.runs.values()):
            if run.future is task:
                return str(run)
        return None

    def ending(self) -> list[int]:
        """Jobs whose lease was lost but whose handler has not ended here: they must not start here a second time."""
        return [run.row.id for run in self.runs.values() if run.interruption is Interruption.LOST]

    def start(self, rows: Sequence[ClaimedRow], token: int, claimed_at: int) -> None:
        """Begin to run what a claim brought; `claimed_at` is on the database's clock, as are the times of the rows."""
        loop = asyncio.get_running_loop()
        create_task = loop.create_task
        self.begun = True
        for row in rows:
            earlier = self.runs.get(row.id)
            if earlier is not None:
                # It was rescued from this very worker and claimed again before the heartbeat noticed.
                self.lose(earlier.lease)
                self._finish(Lease(row.id, token, row.lease_seconds), change(Released()))
                continue
            run = Run(row, token, self._tasks[row.task], max((claimed_at - row.run_at) / 1e6, 0.0))
            self.runs[row.id] = run
            timeout = run.task.settings.timeout
            if timeout is not None:
                run.timer = loop.call_later(timeout.total_seconds(), self._order, run, Interruption.TIMEOUT)
            run.future = create_task(self._perform(run), context=Context())

    def lose(self, lease: Lease) -> None:
        """End the run of a lost lease: somebody else may have the job by now, and its outcome counts for nothing."""
        run = self.runs.get(lease.id)
        if run is not None and run.token == lease.token and run.interruption is not Interruption.LOST:
            self._events.emit(JobLeaseLost(run.job))
            self._order(run, Interruption.LOST)

    def interrupt(self) -> None:
        """Tell every handler to end, because the worker stops."""
        for run in list(self.runs.values()):
            if run.interruption is None:
                self._order(run, Interruption.STOP)

    async def wait_ended(self, seconds: float) -> bool:
        """Wait until nothing runs; False when something still does after this long."""
        with anyio.move_on_after(seconds):
            while self.runs:
                await self._ended.sleep()
        return not self.runs

    def abandon(self) -> list[str]:
        """Give back what would not end, and name it. Its handlers go on, but their outcomes count for nothing."""
        names: list[str] = []
        for run in self.runs.values():
            names.append(str(run))
            run.abandoned = True
            if run.timer is not None:
                run.timer.cancel()
            if run.interruption is not Interruption.LOST:
                self._finish(run.lease, change(Released()))
        return names

    def _order(self, run: Run, interruption: Interruption) -> None:
        """Tell one handler to end, and again each second until it has."""
        if run.timer is not None:
            run.timer.cancel()
        if run.interruption is None or interruption is Interruption.LOST:
            run.interruption = interruption
            run.job.request_cancel()
        if run.in_thread:
            return
        # A task that has not run yet would never enter `_perform` if it were cancelled now; there it looks first.
        if run.begun and run.future is not None:
            run.future.cancel()
        run.timer = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._order, run, run.interruption)

    async def _perform(self, run: Run) -> None:
        run.begun = True
        running.current.set(run.job)
        if self._events.wanted(JobStarted):
            self._events.emit(JobStarted(run.job, run.waited))
        began = anyio.current_time()
        error: BaseException | None = None
        try:
            if run.interruption is not None:
                raise asyncio.CancelledError  # told to end before it began
            try:
                args, kwargs = run.task.arguments.load(run.row.args or await self._read_large(run))
            except InvalidArgsError as refused:
                # The message names places. What caused it may quote values, and is not for the row.
                raise refused from None
            if run.in_thread:
                call = functools.partial(run.task.handler, *args, **kwargs)
                result: object = await anyio.to_thread.run_sync(call, limiter=self._threads)
                if inspect.isawaitable(result):
                    # A plain function around a coroutine function, as some decorators make it.
                    run.in_thread = False
                    if run.interruption is not None:
                        # It was told while it was in the thread, where it could not be cancelled.
                        self._order(run, run.interruption)
                    await result
            else:
                # Registered as a coroutine function: the type of any handler does not say so.
                await run.task.handler(*args, **kwargs)  # type: ignore[misc]
        except BaseException as raised:  # noqa: BLE001 - a handler's SystemExit too is a failed attempt, nothing more
            error = raised
        try:
            self._end(run, error, began)
        except BaseException as bug:  # noqa: BLE001 - nobody awaits this task: the worker is told instead
            self._broke(bug)
        finally:
            # The traceback refers to this frame, and the frame to it: without this, each failure leaves garbage.
            del error

    async def _read_large(self, run: Run) -> str:
        args = await self._large_args(run.lease)
        if args is None:
            self.lose(run.lease)
            raise asyncio.CancelledError
        run.job.fill(args)
        return args

    def _end(self, run: Run, error: BaseException | None, began: float) -> None:
        if run.timer is not None:
            run.timer.cancel()
        if run.abandoned:
            return
        del self.runs[run.row.id]
        self._ended.set()
        self._freed()
        outcome: Outcome | None
        if run.interruption is Interruption.LOST:
            # It was kept from being claimed here, so a claim that found its queue dry may have passed over it.
            self._lost_ended(run.row.queue)
            outcome = None
        elif error is None and run.interruption is None:
            outcome = _SUCCESS
            self._finish(run.lease, _COMPLETED)
        else:
            outcome = decide(
                error,
                run.interruption,
                attempts=run.row.attempts,
                max_attempts=run.row.max_attempts,
                policy=run.task.settings.retry,
                chance=random.random(),  # noqa: S311 - jitter
                final=isinstance(error, UndecodableArgsError),
            )
            self._finish(run.lease, change(outcome))
        failed = kind_of(error, run.interruption) if isinstance(outcome, (Retried, Discarded)) else None
        seconds = anyio.current_time() - began
        self._events.emit(JobFinished(run.job, outcome, error, failed, run.waited, seconds))


_SUCCESS = Completed()
_COMPLETED = change(_SUCCESS)
