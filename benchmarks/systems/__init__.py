"""The systems that are measured, each behind the same four functions."""

from typing import Protocol


class System(Protocol):
    """What a workload asks of a system. Each call is measured from just before it to its return."""

    name: str

    async def prepare(self) -> None:
        """Make an empty installation of its own."""
        ...

    async def enqueue(self, count: int) -> None:
        """Put jobs in one by one, each with its own commit."""
        ...

    async def enqueue_many(self, count: int) -> None:
        """Put jobs in by the fastest way the system offers."""
        ...

    async def drain(self) -> None:
        """Run all jobs that are in, until the last is durably finished."""
        ...
