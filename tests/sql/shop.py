"""Two queues with a task each, for tests that put jobs in."""

from asyncq import Queue

__all__ = ["draw", "emails", "reports", "send"]

emails, reports = Queue("emails"), Queue("reports")


@emails.task
async def send(text: str = "") -> None: ...


@reports.task
async def draw(number: int) -> None: ...
