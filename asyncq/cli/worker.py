"""`asyncq worker MODULE …`: run the jobs of the queues in these modules until told to stop."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

from asyncq.cli import common, log
from asyncq.cli.deadline import Deadline
from asyncq.errors import ConfigurationError
from asyncq.failure import type_name
from asyncq.queue import Queue
from asyncq.worker import ExitCode, Worker, WorkerOptions

__all__ = ["add", "add_options", "loop_factory", "options_of", "run_worker"]

Subparsers = Any

LEFTOVERS_SECONDS = 3.0
"""How long what handlers left behind may hold up the end of the process."""

DECIDED_SECONDS = 0.3
"""How long before the deadline, so that it is not taken for a blocked event loop."""

logger = logging.getLogger("asyncq.worker")


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "worker",
        help="run jobs",
        description="Run the jobs of the queues found in these modules. SIGTERM or Ctrl-C: no more claims, running jobs"
        " get the grace period. A second one: stop at once.",
        epilog="exit codes: 0 stopped, 1 an internal loop died or outcomes could not be written, 2 usage or"
        " configuration, 3 schema, 4 server not reachable at the start, 5 forced by a second signal, 6 handlers that"
        " would not end, 7 the event loop was blocked for too long",
        allow_abbrev=False,
    )
    parser.add_argument(
        "modules", nargs="+", metavar="MODULE[:NAME]", help="a module with Queue objects, or one of them"
    )
    add_options(parser)
    common.add_database(parser)
    parser.add_argument(
        "--listen-dsn",
        default=os.environ.get("ASYNCQ_LISTEN_DSN") or None,
        metavar="DSN",
        help="listen for notifications here, when the database is behind a pooler that does not deliver them; else the"
        " environment's ASYNCQ_LISTEN_DSN",
    )
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that are `WorkerOptions`, and which queues to serve."""
    given = WorkerOptions()
    parser.add_argument(
        "--queue", action="append", metavar="NAME", help="serve only this queue (may be repeated; default: all found)"
    )
    parser.add_argument(
        "--concurrency", type=int, default=given.concurrency, metavar="N", help="jobs at once (default: %(default)s)"
    )
    for name, what in (
        ("poll", "look this often without having been notified"),
        ("grace", "running jobs may go on this long after a stop"),
        ("cleanup", "delete jobs past their retention this often"),
    ):
        default = getattr(given, name)
        parser.add_argument(
            f"--{name}",
            type=common.seconds,
            default=default,
            metavar="SECONDS",
            help=f"{what} (default: {default.total_seconds():g})",
        )
    parser.add_argument(
        "--stall-leases",
        type=int,
        default=given.stall_leases,
        metavar="N",
        help="end the process when a handler has blocked the event loop for so many leases (default: %(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="serve queues strictly in the order of --queue, not by weight"
    )
    parser.add_argument("--burst", action="store_true", help="end when no due job is left")
    parser.add_argument(
        "--max-jobs",
        type=int,
        metavar="N",
        help="start no more than so many jobs, and end with the last (default: no limit)",
    )
    parser.add_argument(
        "--no-durable",
        dest="durable",
        action="store_false",
        help="do not wait for the server's disk; a crash of the server then runs the jobs of its last moment again",
    )
    parser.add_argument("--verbose", action="store_true", help="log each job")
    parser.add_argument(
        "--log-format",
        choices=tuple(log.FORMATS),
        default="console",
        help="readable lines, or one JSON object a line (default: %(default)s)",
    )


def options_of(options: argparse.Namespace) -> WorkerOptions:
    """Make the options of a worker."""
    return WorkerOptions(
        concurrency=options.concurrency,
        poll=options.poll,
        grace=options.grace,
        cleanup=options.cleanup,
        strict=options.strict,
        burst=options.burst,
        max_jobs=options.max_jobs,
        durable=options.durable,
        stall_leases=options.stall_leases,
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    settings = replace(options_of(options), listen_dsn=options.listen_dsn)
    dsn = common.dsn_of(options)
    log.set_up(logging.DEBUG if options.verbose else logging.INFO, options.log_format)
    if options.verbose:
        logging.getLogger("asyncio").setLevel(logging.INFO)
    queues = common.queues_of(options.modules)
    common.schema_of(options, queues)
    worker = Worker(_served(queues, options.queue), dsn, settings, registry=queues)
    return run_worker(worker)


def _served(queues: list[Queue], names: list[str] | None) -> list[Queue]:
    if not names:
        return queues
    known = {queue.name: queue for queue in queues}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no queue {name!r} in these modules; there is {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def run_worker(worker: Worker) -> int:
    """Run a worker in this process's main thread, under its signals; gives the exit code.

    Unless it stopped cleanly or never began, it does not come back but ends the process: a handler that swallows its
    cancellation would hold up the closing of the event loop, and a thread of one the end of the interpreter.
    """
    runner = asyncio.Runner(loop_factory=loop_factory())
    loop = runner.get_loop()
    grace = worker.options.grace.total_seconds()
    deadline = Deadline(loop, _SIGNALS, grace=grace, named=worker.named)
    main = loop.create_task(_under_signals(worker, deadline))
    try:
        code = _run_to_its_end(loop, main, deadline)
    except BaseException as error:
        if not worker.served:
            runner.close()
            raise
        logger.critical("the worker failed", exc_info=error)
        code = ExitCode.FAILED
    if code != ExitCode.STOPPED:
        _end_process(code)
    # Tasks and threads that handlers left behind may hold up what follows, for ever.
    patience = min(LEFTOVERS_SECONDS, deadline.left() - DECIDED_SECONDS)
    # Without a job there is nobody to blame: a name that is being resolved, say, in a thread of asyncio's.
    leftovers = threading.Timer(max(patience, 0.0), _leave_behind if worker.ran else _end_process, args=(code,))
    leftovers.daemon = True
    leftovers.start()
    runner.close()
    return code


def _run_to_its_end(loop: asyncio.AbstractEventLoop, main: asyncio.Task[int], deadline: Deadline) -> int:
    while True:
        try:
            return loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            if main.done():
                raise
            # A task that a handler made raised it: asyncio stops the loop for that. It is no reason to end here.
            logger.warning("a task of a handler raised %s; the worker goes on", type_name(error))
            loop.call_soon(deadline.listen)


def _leave_behind(_code: int) -> None:
    logger.error("handlers left tasks or threads behind that would not end; their jobs were given back or finished")
    _end_process(ExitCode.STUCK)


def _end_process(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _keep_from_children() -> None:
    """Give forked children their own signals: those of the event loop would arrive at the parent's."""
    if not hasattr(os, "register_at_fork"):
        return  # Windows forks nothing

    def forget() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    os.register_at_fork(
        # Held back until the child has forgotten the parent's handlers.
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS),
        after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS),
        after_in_child=forget,
    )


async def _under_signals(worker: Worker, deadline: Deadline) -> int:
    loop = asyncio.get_running_loop()
    _keep_from_children()

    def stop() -> None:
        worker.stop(late=deadline.late())

    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows has none in its event loops
            signal.signal(number, handle)
    listening = asyncio.create_task(deadline.keep_listening())
    try:
        return await worker.run()
    finally:
        listening.cancel()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose uvloop where it is installed; on Windows the loop that psycopg can use."""
    if sys.platform == "win32":
        return asyncio.SelectorEventLoop
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return new_event_loop
