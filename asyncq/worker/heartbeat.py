"""Keep the leases of what runs here, and notice the ones that were lost.

The interval is a third of the shortest lease held, at most 20 seconds: two beats may fail before a lease runs out.
Nothing is sent while nothing is held.

The connection is shared with statements that have time: where an old snapshot keeps millions of dead rows, looking for
runs to be rescued takes seconds. A beat does not wait for these for long, and then takes a connection for itself.
"""

from collections.abc import Callable
from math import inf

import anyio

from asyncq.db import jobs
from asyncq.db.connection import Address, BusyError, Session
from asyncq.job import Lease
from asyncq.worker.trouble import Trouble
from asyncq.worker.wakeup import Wakeup

__all__ = ["LONGEST_INTERVAL", "Heartbeat", "interval"]

LONGEST_INTERVAL = 20.0


def interval(lease_seconds: float) -> float:
    """Seconds between two heartbeats for a lease.

    >>> interval(60.0), interval(3.0), interval(3600.0)
    (20.0, 1.0, 20.0)
    """
    return min(lease_seconds / 3.0, LONGEST_INTERVAL)


class Heartbeat:
    """Extend leases in time.

    Args:
        session: the connection for leases.
        spare: where to connect when that is busy.
        schema: of the jobs.
        patience: seconds after which a statement has failed.
        held: gives the leases to extend.
        lost: takes a lease that is gone.
    """

    def __init__(
        self,
        session: Session,
        spare: Address,
        schema: str,
        *,
        patience: float,
        held: Callable[[], list[Lease]],
        lost: Callable[[Lease], None],
    ) -> None:
        self._session = session
        self._spare = spare
        self._schema = schema
        self._patience = patience
        self._held = held
        self._lost = lost
        self._wakeup = Wakeup()
        self._next = inf
        self._ended = False

    def expect(self, lease_seconds: float, since: float) -> None:
        """Plan for leases taken at some time: a short one must be extended before the next beat was due."""
        soonest = since + interval(lease_seconds)
        if soonest < self._next:
            self._next = soonest
            self._wakeup.set()

    def end(self) -> None:
        """Let `run` end."""
        self._ended = True
        self._wakeup.set()

    async def run(self) -> None:
        """Beat until ended."""
        self._next = min(self._next, anyio.current_time() + LONGEST_INTERVAL)
        while not self._ended:
            remaining = self._next - anyio.current_time()
            if remaining > 0:
                await self._wakeup.sleep(remaining)
                continue
            leases = self._held()
            every = min((interval(lease.seconds) for lease in leases), default=LONGEST_INTERVAL)
            self._next = anyio.current_time() + every
            if leases:
                await self._beat(leases, every)

    async def _beat(self, leases: list[Lease], every: float) -> None:
        # After an outage live workers are to beat before anybody rescues, so the tries are never far apart.
        trouble = Trouble("extending leases", longest_wait=min(every / 2, 2.0))
        while not self._ended:
            try:
                not_extended = await self._extend(leases, every / 4.0)
            except Exception as error:  # noqa: BLE001 - `met` raises what is no trouble of the database
                await anyio.sleep(trouble.met(error, anyio.current_time()))
                leases = self._held()
                continue
            trouble.over()
            break
        else:
            return
        for lease in leases:
            busy = not_extended.get((lease.id, lease.token))
            if busy:
                # Somebody's open transaction holds the row. Tried again soon, while the lease still runs.
                self._next = min(self._next, anyio.current_time() + every / 4)
            elif busy is not None and any(lease == held for held in self._held()):
                # Still held, so it was not finished by us while the statement was under way.
                self._lost(lease)

    async def _extend(self, leases: list[Lease], turn_within: float) -> jobs.Unwritten:
        try:
            return await jobs.heartbeat(
                self._session, self._schema, leases, patience=self._patience, turn_within=turn_within
            )
        except BusyError:
            spare = Session(self._spare, patience=self._patience)
            try:
                return await jobs.heartbeat(spare, self._schema, leases)
            finally:
                with anyio.CancelScope(shield=True):
                    await spare.close()
