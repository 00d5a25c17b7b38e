"""What may be chosen about a worker, and how it can end."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

from asyncq import ranges
from asyncq.errors import ConfigurationError

__all__ = ["ExitCode", "WorkerOptions"]


class ExitCode(IntEnum):
    """Tell how a worker ended; the command line exits with it.

    Code 2 is a wrong use or configuration. All codes but 0 leave a line in the log that says why.

    >>> int(ExitCode.FORCED)
    5
    """

    STOPPED = 0
    FAILED = 1
    SCHEMA = 3
    UNREACHABLE = 4
    FORCED = 5
    STUCK = 6
    STALLED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Choose how a worker works; the defaults suit handlers that wait for a network.

    Args:
        concurrency: jobs that run at once, 1 to 10,000. Handlers that are plain `def` need a thread each.
        poll: how often to look without having been notified, 0.1 seconds to 1 day.
        grace: how long running jobs may go on after a stop, 0 seconds to 7 days.
        cleanup: how often to delete jobs past their retention, 1 second to 7 days.
        strict: serve queues strictly in the order given, not by their weights.
        burst: end when no due job is left and nothing runs here. What dead workers left is run too; to be sure of their
            death takes a third of the shortest lease, 3 to 20 seconds.
        max_jobs: start no more jobs than this, 1 to 1,000,000,000, and end with the last of them: a fresh process may
            then take over from one whose handlers leak memory.
        durable: wait until each claim, with the outcomes written along, has reached the server's disk. Without, the
            last of them, those of about half a second, may be undone by a crash of the server, and by nothing else:
            their jobs run again, also those that were done, and attempts begun in that time are not counted. What was
            deferred is not concerned.
        listen_dsn: where to listen for notifications, when the worker's own DSN leads to a pooler that does not deliver
            them. The same database, by another way.
        stall_leases: for how many leases the event loop may be blocked before the process ends itself with exit code 7,
            1 to 1,000: of the longest lease held then. Until then the leases are kept.

    Raises:
        ConfigurationError: a value is of another type or out of range.

    >>> WorkerOptions(concurrency=20, grace=timedelta(seconds=10)).concurrency
    20
    """

    concurrency: int = 100
    poll: timedelta = timedelta(seconds=60)
    grace: timedelta = timedelta(seconds=30)
    cleanup: timedelta = timedelta(hours=1)
    strict: bool = False
    burst: bool = False
    max_jobs: int | None = None
    durable: bool = True
    stall_leases: int = 10
    listen_dsn: str | None = field(default=None, repr=False)  # it may have a password

    def __post_init__(self) -> None:
        ranges.whole_number("concurrency", self.concurrency, (1, 10_000), ConfigurationError)
        if self.listen_dsn is not None and not isinstance(self.listen_dsn, str):
            raise ConfigurationError(f"listen_dsn must be a DSN or None, not {self.listen_dsn!r:.100}")
        ranges.whole_number("stall_leases", self.stall_leases, (1, 1_000), ConfigurationError)
        if self.max_jobs is not None:
            ranges.whole_number("max_jobs", self.max_jobs, (1, 1_000_000_000), ConfigurationError)
        for what, value, shortest, longest in (
            ("poll", self.poll, timedelta(seconds=0.1), timedelta(days=1)),
            ("grace", self.grace, timedelta(0), timedelta(days=7)),
            ("cleanup", self.cleanup, timedelta(seconds=1), timedelta(days=7)),
        ):
            ranges.duration(what, value, ConfigurationError, shortest=shortest, longest=longest)
        for what, flag in (("strict", self.strict), ("burst", self.burst), ("durable", self.durable)):
            if not isinstance(flag, bool):
                raise ConfigurationError(f"{what} must be True or False, not {flag!r:.100}")
