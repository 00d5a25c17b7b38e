"""Worker processes under a supervisor that starts another for each that ends."""

from collections import Counter
from pathlib import Path

import anyio

from tests.processes import WorkerProcess


class Fleet:
    """Some workers of one application.

    Args:
        dsn: their database.
        arguments: of `asyncq worker`, the module first.
        logs: a directory for what they log.
    """

    def __init__(self, dsn: str, arguments: tuple[str, ...], logs: Path) -> None:
        self.workers: list[WorkerProcess] = []
        self.codes: Counter[int] = Counter()
        """How those ended that were replaced."""
        self._dsn = dsn
        self._arguments = arguments
        self._logs = logs
        self._started = 0

    def start(self, count: int) -> None:
        self.workers = [self._start() for _ in range(count)]

    def _start(self) -> WorkerProcess:
        self._started += 1
        module, *options = self._arguments
        return WorkerProcess(self._dsn, module, *options, logs=self._logs, name=f"worker-{self._started}")

    async def supervise(self) -> None:
        """Replace what ends, until cancelled."""
        while True:
            for place, worker in enumerate(self.workers):
                if (code := worker.returncode) is not None:
                    self.codes[code] += 1
                    self.workers[place] = self._start()
            await anyio.sleep(0.1)

    def close(self) -> None:
        for worker in self.workers:
            worker.cont()
            worker.reap()
