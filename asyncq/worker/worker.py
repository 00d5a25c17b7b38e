"""The worker: which loops there are, how they are tied together, and in which order they end.

::

    lifelines:   heartbeat, rescue, upkeep, listen       last to go: leases are kept while jobs drain
      settling:  finish                                  ends when the last outcome is written
        jobs:    claim until stopping, into execute      no new claims; at the grace deadline handlers are cancelled

The indentation of `_work` is this order. Stopping is done by flags: no loop is cancelled in mid-statement unless it
hangs. A loop that dies takes the worker down in the same orderly way; there is no half-dead worker.

A thread watches the event loop itself, and keeps the leases while that is blocked.

Connections, all the worker's own: one for claims and outcomes, one for leases, rescue and upkeep, one that listens,
once the event loop was blocked, one for the thread that watches it, and one for a heartbeat while upkeep takes long.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, nullcontext
from typing import Any

import anyio
import psycopg
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from psycopg_pool import AsyncConnectionPool

from asyncq.db import history, migrate, rights
from asyncq.db.connection import Address, Session, address_of, connect
from asyncq.db.listen import Heard
from asyncq.errors import ConfigurationError
from asyncq.events import Events, WorkerDraining, WorkerStarted, WorkerStopped
from asyncq.job import Lease
from asyncq.queue import Queue
from asyncq.release import __version__
from asyncq.worker.claim import Claimer
from asyncq.worker.cleanup import Cleanup
from asyncq.worker.execute import Executor
from asyncq.worker.finish import Finisher
from asyncq.worker.heartbeat import Heartbeat, interval
from asyncq.worker.horizon import Horizon
from asyncq.worker.lanes import Lanes, Look
from asyncq.worker.large import LargeArgs
from asyncq.worker.listen import Listener
from asyncq.worker.log import Log
from asyncq.worker.options import ExitCode, WorkerOptions
from asyncq.worker.presence import Presence
from asyncq.worker.quiet import Quiet
from asyncq.worker.registry import by_name, checked_queues, tasks_of
from asyncq.worker.rescue import Rescuer
from asyncq.worker.tally import Tally
from asyncq.worker.trouble import Trouble, one_line
from asyncq.worker.unknown import Unknown
from asyncq.worker.wakeup import Wakeup
from asyncq.worker.watchdog import Watchdog

__all__ = ["Worker"]

logger = logging.getLogger("asyncq.worker")

START_SECONDS = 15.0
"""How long a server that cannot be reached at the start is waited for."""

HANDLERS_SECONDS = 5.0
"""How long cancelled handlers have to end."""

FORCED_SECONDS = 1.0
"""How long they have after a second signal."""

CLAIM_SECONDS = 3.0
"""How long a claim that was under way at the stop has to come back."""

SETTLE_SECONDS = 6.0
"""How long the last outcomes may take to be written."""

FORCED_SETTLE_SECONDS = 3.0
"""How long after a second signal."""

LIFELINES_SECONDS = 1.0
"""How long statements of the other loops have at the very end."""


class Worker:
    """Run the jobs of some queues, in this process and this event loop.

    It never touches signals, the event loop's policy or logging's set-up: that is the host's. Cancelling `run` ends it
    as a second signal would: handlers are cancelled, their jobs given back, and the cancellation goes on.

    Args:
        queues: what to serve, in the order of serving when `strict`.
        source: a DSN, or a pool, whose connection parameters are used for connections of the worker's own.
        options: see `WorkerOptions`.
        registry: queues whose tasks can run here too, though they are not served.

    Raises:
        ConfigurationError: no queue, two of one name or of two schemas, or a DSN that cannot be read.
        TaskAlreadyRegisteredError: two tasks of one name.

    >>> worker = Worker([Queue("emails")], "postgresql://localhost/shop", WorkerOptions(burst=True))
    >>> list(worker.queues)
    ['emails']
    """

    def __init__(
        self,
        queues: Iterable[Queue],
        source: str | AsyncConnectionPool[Any],
        options: WorkerOptions | None = None,
        *,
        registry: Iterable[Queue] = (),
    ) -> None:
        served = checked_queues(queues)
        self.queues = by_name(served)
        self.tasks = tasks_of([*served, *registry])
        self.options = options or WorkerOptions()
        self.id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.events = Events()
        """What happens here, for whoever subscribes before or while it runs."""
        self._log = Log(self.events)
        self._schema = served[0].schema
        # Any worker rescues any job: also those put in by SQL, whose lease is the library's 60 seconds.
        self._shortest_lease = min(
            [60.0]
            + [queue.lease.total_seconds() for queue in served]
            + [task.settings.lease.total_seconds() for task in self.tasks.values()]
        )
        self._recorded = any(queue.history is not None for queue in served)
        # A heartbeat that hangs must be found while there is time for another try.
        self._lease_patience = max(interval(self._shortest_lease), 3.0)
        self._addresses: dict[str, Address] = {
            "jobs": address_of(source, f"jobs {self.id}", durable=self.options.durable),
            "leases": address_of(source, f"leases {self.id}"),
            "heartbeat": address_of(source, f"heartbeat {self.id}", patience=self._lease_patience),
            "listen": self._listen_address(source),
            "watchdog": address_of(source, f"watchdog {self.id}", patience=self._lease_patience),
        }
        self._pool_size = source.max_size if isinstance(source, AsyncConnectionPool) else None
        self.served = False
        """Whether it got as far as serving its queues."""
        self._begun = False
        self._ready = False
        self._pooled = False
        self._status: TaskStatus[None] = TASK_STATUS_IGNORED
        self._stops = 0
        self._ending = False
        self._late = 0.0
        self._failure: BaseException | None = None
        self._starting: anyio.CancelScope | None = None
        self._settling: anyio.CancelScope | None = None
        self._changed: Wakeup | None = None
        self._executor: Executor | None = None
        self._claimer: Claimer | None = None
        self._presence = Presence(
            self._schema,
            worker=self.id,
            queues=list(self.queues),
            tasks=list(self.tasks),
            concurrency=self.options.concurrency,
            tally=Tally(self.events),
        )
        self._listener: Listener | None = None
        self._lanes: Lanes | None = None
        self._horizon: Horizon | None = None

    def _listen_address(self, source: str | AsyncConnectionPool[Any]) -> Address:
        if not self.options.listen_dsn:
            return address_of(source, f"listen {self.id}")
        try:
            return address_of(self.options.listen_dsn, f"listen {self.id}")
        except ConfigurationError as error:
            raise ConfigurationError(f"listen_dsn: {error}") from None

    def stop(self, *, now: bool = False, late: float = 0.0) -> None:
        """Ask `run` to end: claims stop, running jobs get the grace period.

        Args:
            now: cancel the handlers at once. A second call of `stop` does the same.
            late: seconds since the stop was wanted. They are part of the grace period.

        To be called in the event loop of `run`.
        """
        if self._stops == 0:
            self._late = late
        self._stops += 2 if now else 1
        if self._settling is not None:
            self._settle(self._settling)
        if self._stops == 1:
            self.events.emit(WorkerDraining(self.id, self.options.grace.total_seconds()))
        self._end()

    def _end(self) -> None:
        """Claim no more, and end when the jobs have; one that ends by itself still waits for its first stop."""
        self._ending = True
        if self._starting is not None:
            # Nothing is held yet, so what hangs at the start may be torn.
            self._starting.cancel()
        if self._claimer is not None:
            self._claimer.stop()
        self._presence.stop()
        if self._listener is not None:
            self._listener.wake()
        if self._changed is not None:
            self._changed.set()

    @property
    def ran(self) -> bool:
        """Whether it has run any job."""
        return self._executor is not None and self._executor.begun

    def named(self, task: asyncio.Task[object]) -> str | None:
        """Name the job that an asyncio task runs, if it does. Any thread may ask."""
        return None if self._executor is None else self._executor.named(task)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> ExitCode:
        """Work until stopped.

        Args:
            task_status: for `await task_group.start(worker.run)`, which comes back when the worker is ready: it is
                subscribed to notifications and about to take its first look.

        Returns:
            How it ended. With `STUCK`, handlers go on that would not end; their jobs were given back, so the process
            should end at once.

        Raises:
            SchemaOutdatedError: the schema is missing or does not fit this release.
            ConfigurationError: the role lacks a right. The message has the `grant` to run.
            psycopg.OperationalError: the server could not be reached at the start, for 15 seconds.
            Exception: what a loop of the worker died of. The jobs that ran were given back as far as possible.
            RuntimeError: it was run before.
        """
        if self._begun:
            raise RuntimeError("a worker runs once: make another")
        self._begun = True
        self._status = task_status
        _refuse_proactor()
        self._changed = Wakeup()
        ended = anyio.Event()
        results: list[ExitCode | Exception] = []

        async def guarded() -> None:
            # A cancelled host must not tear statements: it is told of as a stop, and ends with the flags.
            with anyio.CancelScope(shield=True):
                try:
                    results.append(await self._work())
                except Exception as error:  # noqa: BLE001 - raised again below, out of the shield
                    results.append(error)
                finally:
                    ended.set()

        async with anyio.create_task_group() as host:
            host.start_soon(guarded)
            try:
                await ended.wait()
            except BaseException:
                self.stop(now=True)
                raise
        result = results[0]
        if isinstance(result, Exception):
            raise result
        return result

    async def _work(self) -> ExitCode:
        options = self.options
        stuck: list[str] = []
        async with AsyncExitStack() as closing:
            work = Session(self._addresses["jobs"])
            leases = Session(self._addresses["leases"])
            closing.push_async_callback(work.close)
            closing.push_async_callback(leases.close)
            with anyio.CancelScope() as self._starting:
                await self._check_database(leases)
            if self._stops:
                return ExitCode.FORCED if self._stops > 1 else ExitCode.STOPPED

            self.served = True

            # The claimer needs the others, and they tell it what happens.
            def freed() -> None:
                claimer.freed()

            def lost_ended(queue: str) -> None:
                claimer.notified(queue)

            def quiet_changed() -> None:
                listener.wake()

            finisher = Finisher(
                work,
                self._schema,
                events=self.events,
                recorded=self._recorded,
                written=freed,
                carrier=lambda: claimer.awake,
            )
            executor = self._executor = Executor(
                self.tasks,
                options.concurrency,
                events=self.events,
                large_args=LargeArgs(work, self._schema).read,
                finish=finisher.put,
                freed=freed,
                lost_ended=lost_ended,
                broke=self._broke,
            )

            def held() -> list[Lease]:
                return executor.leases() + finisher.leases()

            heartbeat = Heartbeat(
                leases,
                self._addresses["heartbeat"],
                self._schema,
                patience=self._lease_patience,
                held=held,
                lost=executor.lose,
            )
            watchdog = Watchdog(
                self._addresses["watchdog"],
                self._schema,
                patience=self._lease_patience,
                shortest_lease=self._shortest_lease,
                most_leases=options.stall_leases,
                held=held,
                named=executor.named,
                broke=self._broke,
            )
            closing.push_async_callback(watchdog.end)
            quiet = {name: Quiet(anyio.current_time(), options.poll.total_seconds()) for name in self.queues}
            lanes = self._lanes = Lanes()
            horizon = self._horizon = Horizon(leases, self._schema, lanes=lanes, tasks=list(self.tasks))

            def took(lease_seconds: float, since: float) -> None:
                heartbeat.expect(lease_seconds, since)
                horizon.moved()
                watchdog.expect()

            claimer = self._claimer = Claimer(
                work,
                self._schema,
                worker_id=self.id,
                weights={queue.name: queue.weight for queue in self.queues.values()},
                strict=options.strict,
                tasks=self.tasks,
                poll=options.poll,
                burst=options.burst,
                most=options.max_jobs,
                lanes=lanes,
                executor=executor,
                finisher=finisher,
                events=self.events,
                recorded=self._recorded,
                quiet=quiet,
                quiet_changed=quiet_changed,
                took=took,
                settled=lambda: rescuer.settled,
                done=self._end,
            )
            rescuer = Rescuer(
                leases,
                self._schema,
                lease_seconds=self._shortest_lease,
                events=self.events,
                rescued=claimer.look,
                looked=freed,
            )
            cleanup = Cleanup(
                leases,
                self._schema,
                retention={queue.name: queue.retention for queue in self.queues.values()},
                every=options.cleanup,
                recorded=self._recorded,
            )
            unknown = Unknown(leases, self._schema, queues=list(self.queues), tasks=list(self.tasks))
            listener = self._listener = Listener(
                self._addresses["listen"],
                self._schema,
                queues=quiet,
                sender=leases,
                presence=self._presence,
                elsewhere=bool(options.listen_dsn),
                notified=self._heard,
                begun=self._serving,
                missed=lambda queue: claimer.look(queue, Look.BACK),
                changed=freed,
            )

            watchdog.start()
            async with anyio.create_task_group() as lifelines:
                for name, run in (
                    ("heartbeat", heartbeat.run),
                    ("horizon", horizon.run),
                    ("rescue", rescuer.run),
                    ("cleanup", cleanup.run),
                    ("unknown tasks", unknown.run),
                    ("listen", listener.run),
                ):
                    lifelines.start_soon(self._loop, name, run)
                async with anyio.create_task_group() as settling:
                    settling.start_soon(self._loop, "finish", finisher.run)
                    async with anyio.create_task_group() as claiming:
                        scope = anyio.CancelScope()
                        claiming.start_soon(self._loop, "claim", claimer.run, scope)
                        stuck = await self._drain(executor, scope)
                    finisher.close()
                    # Once it was told to stop, a deadline ends what an absent database would keep waiting.
                    self._settle(settling.cancel_scope)
                for each in (heartbeat, horizon, rescuer, cleanup, unknown, listener):
                    each.end()
                lifelines.start_soon(self._presence.leave, leases)
                # A statement that is under way gets a moment.
                lifelines.cancel_scope.deadline = anyio.current_time() + LIFELINES_SECONDS
            unwritten = finisher.ids()
        return self._verdict(stuck, unwritten)

    def _settle(self, scope: anyio.CancelScope) -> None:
        self._settling = scope
        if self._stops == 0:
            return  # it ends by itself, and nobody waits for it
        seconds = FORCED_SETTLE_SECONDS if self._stops > 1 else SETTLE_SECONDS
        scope.deadline = min(scope.deadline, anyio.current_time() + seconds)

    async def _loop(
        self, name: str, run: Callable[[], Awaitable[None]], scope: anyio.CancelScope | None = None
    ) -> None:
        try:
            with scope or nullcontext():
                await run()
        except Exception as error:  # noqa: BLE001 - whatever it died of, the worker ends in order
            logger.critical("the %s loop died, the worker stops: %s", name, one_line(error))
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """Take the worker down in order, for an error that only a person can mend."""
        self._failure = self._failure or error
        self.stop(now=True)

    async def _check_database(self, leases: Session) -> None:
        trouble = Trouble("connecting")
        began = anyio.current_time()
        while True:
            try:
                with anyio.fail_after(START_SECONDS):
                    connection, self._pooled = await connect(self._addresses["leases"])
                    async with connection:
                        await rights.check(connection, self._schema, rights.RECORDS if self._recorded else rights.WORKS)
                        await migrate.check(connection, self._schema, __version__)
                    # Before the first outcome is written.
                    await history.declare(
                        leases, self._schema, {name: queue.history for name, queue in self.queues.items()}
                    )
                    if self._recorded:
                        await history.keep(leases, self._schema)
                return
            except (psycopg.OperationalError, OSError) as error:
                now = anyio.current_time()
                wait = trouble.met(error, now)
                if now + wait - began > START_SECONDS:
                    if isinstance(error, psycopg.Error):
                        raise
                    what = str(error) or "is its name slow to be resolved, or a pooler in between paused?"
                    raise psycopg.OperationalError(f"the server did not answer in time: {what}") from error
                await anyio.sleep(wait)

    def _heard(self, heard: Heard) -> None:
        assert self._claimer is not None
        if heard.past:
            self._claimer.look(heard.queue)
        else:
            self._claimer.notified(heard.queue)

    def _serving(self) -> None:
        assert self._claimer is not None
        assert self._horizon is not None
        assert self._lanes is not None
        # It may be another server by now, with another clock.
        self._horizon.restart()
        self._lanes.forget()
        self._claimer.reconnected()
        self._claimer.look()
        if not self._ready:
            self._ready = True
            self._status.started()
            if not self.tasks:
                logger.warning("no task is registered: is the module that defines the tasks among those loaded?")
            if self._pool_size is not None and self._pool_size < self.options.concurrency:
                logger.info(
                    "the pool has %d connections for %d slots: handlers that use it at once wait for each other",
                    self._pool_size, self.options.concurrency,
                )  # fmt: skip
            if self._pooled:
                logger.info("connected through a pooler: each statement brings its settings along, none is prepared")
            self.events.emit(WorkerStarted(self.id, list(self.queues), list(self.tasks), self.options.concurrency))

    async def _drain(self, executor: Executor, claiming: anyio.CancelScope) -> list[str]:
        """Wait for the end, then for the handlers; gives the names of those that would not end."""
        changed = self._changed
        assert changed is not None
        while not self._ending:
            await changed.sleep()
        claiming.deadline = anyio.current_time() + CLAIM_SECONDS
        while not self._stops and executor.runs:
            # It ends by itself, and nobody waits for it: the grace period begins with a stop.
            await executor.wait_ended(0.05)
        grace_ends = anyio.current_time() + self.options.grace.total_seconds() - self._late
        while self._stops < 2 and executor.runs and (left := grace_ends - anyio.current_time()) > 0:
            # Woken by a second stop within this; the end of the last handler is looked for as often.
            await executor.wait_ended(min(left, 0.05))
        if not executor.runs:
            return []
        logger.warning("%d jobs still run: their handlers are cancelled", len(executor.runs))
        executor.interrupt()
        if await executor.wait_ended(FORCED_SECONDS if self._stops > 1 else HANDLERS_SECONDS):
            return []
        return executor.abandon()

    def _verdict(self, stuck: list[str], unwritten: list[int]) -> ExitCode:
        self._log.sum_up(at_once=True)
        if unwritten:
            shown = ", ".join(map(str, unwritten[:20])) + (" ..." if len(unwritten) > 20 else "")
            logger.error(
                "the outcomes of %d jobs could not be written; they run again when their leases end: %s",
                len(unwritten), shown,
            )  # fmt: skip
        if stuck:
            given_back = "" if unwritten else "; their jobs were given back"
            logger.error("handlers that would not end%s: %s", given_back, ", ".join(stuck))
        if self._failure is not None:
            raise self._failure
        if stuck:
            return ExitCode.STUCK
        if unwritten:
            return ExitCode.FAILED
        if self._stops > 1:
            self.events.emit(WorkerStopped(self.id, forced=True))
            return ExitCode.FORCED
        self.events.emit(WorkerStopped(self.id, forced=False))
        return ExitCode.STOPPED


def _refuse_proactor() -> None:
    proactor = getattr(asyncio, "ProactorEventLoop", None)  # there is one on Windows only
    if proactor is not None and isinstance(asyncio.get_running_loop(), proactor):
        raise ConfigurationError("psycopg needs a selector event loop: run the worker with asyncio.SelectorEventLoop")
