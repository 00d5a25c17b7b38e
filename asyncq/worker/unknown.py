"""Tell of jobs that this worker leaves alone because its code does not know their tasks.

During a deploy that is as it should be, and over in a minute. Afterwards it means that a task was renamed or removed,
that a job was deferred to a queue whose workers do not know it, or that its name was misspelt in SQL.
"""

import logging
from collections.abc import Sequence

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup, jittered

__all__ = ["Unknown"]

logger = logging.getLogger("asyncq.worker")

WAITED_SECONDS = 60.0
"""How long a due job may wait without a word. The first look comes a little later than that after the start."""

EVERY_SECONDS = 300.0
"""Between two later looks, at most: half to all of it."""

EVERY_FACTOR = 200.0
"""Not before so many times as long as the last look took."""

MOST_NAMES = 20
"""So many names are logged of each queue."""


class Unknown:
    """Look for such jobs now and then, until ended.

    Args:
        session: the connection for leases.
        schema: of the jobs.
        queues: those served.
        tasks: known names.
    """

    def __init__(self, session: Session, schema: str, *, queues: Sequence[str], tasks: Sequence[str]) -> None:
        self._session = session
        self._schema = schema
        self._queues = queues
        self._tasks = tasks
        self._told: dict[str, set[str]] = {}
        self._wakeup = Wakeup()
        self._ended = False

    def end(self) -> None:
        """Let `run` end."""
        self._ended = True
        self._wakeup.set()

    async def run(self) -> None:
        """Look at each interval; what was told is told again only when other names are found."""
        trouble = Trouble("looking for jobs of unknown tasks")
        # What was there at the start has waited for long enough then.
        pause = WAITED_SECONDS * 1.1
        first = True
        while True:
            await self._wakeup.sleep(pause if first else jittered(pause))
            first = False
            if self._ended:
                return
            # Also after a failure: it is nothing that anybody waits for.
            pause = EVERY_SECONDS
            began = anyio.current_time()
            try:
                found = await jobs.unknown(
                    self._session, self._schema, queues=self._queues, tasks=self._tasks, waited=WAITED_SECONDS
                )
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                trouble.met(error, anyio.current_time())
                continue
            trouble.over()
            # Under an old snapshot it also walks what that keeps of the jobs that have run since.
            pause = max(pause, EVERY_FACTOR * (anyio.current_time() - began))
            for queue, tasks in found.items():
                if self._told.get(queue) != tasks.keys():
                    _tell(queue, tasks)
            self._told = {queue: set(tasks) for queue, tasks in found.items()}


def _tell(queue: str, tasks: dict[str, float]) -> None:
    names = ", ".join(list(tasks)[:MOST_NAMES]) + (" ..." if len(tasks) > MOST_NAMES else "")
    logger.warning(
        "queue %s: jobs of tasks that this worker does not know have waited for %.0f s: %s; they wait for a worker"
        ' whose code has them ("A job does not run?" in the README)',
        queue, max(tasks.values()), names,
    )  # fmt: skip
