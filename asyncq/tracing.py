"""What travels along with jobs beside their arguments, and who puts it there: tracing, if there is any.

The core knows of no tracing library. One that traces calls `around_defers`, once for the process, and is then told of
each defer: it may begin a span, and give headers, which are stored with the job and come back as
`current_job().headers`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

__all__ = ["Sending", "around_defers"]


class Sending:
    """One defer on its way: of one job, or of many of one task.

    Attributes:
        queue, task: where they go.
        many: whether it is a `defer_many`.
        headers: to be set at its begin: what is to travel along, texts by name, not more than 4 KiB of JSON.
        job_ids: known at its end, if it ended well.
    """

    __slots__ = ("_within", "headers", "job_ids", "many", "queue", "task")

    def __init__(self, queue: str, task: str, *, many: bool) -> None:
        self.queue = queue
        self.task = task
        self.many = many
        self.headers: Mapping[str, str] | None = None
        self.job_ids: Sequence[int] = ()
        self._within: AbstractContextManager[object] | None = None

    @property
    def text(self) -> str | None:
        """The headers as JSON, None without any."""
        return json.dumps(dict(self.headers)) if self.headers else None

    def __enter__(self) -> Self:
        if _around is not None:
            self._within = _around(self)
            self._within.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._within is not None:
            self._within.__exit__(kind, error, traceback)


_around: Callable[[Sending], AbstractContextManager[object]] | None = None


def around_defers(tracer: Callable[[Sending], AbstractContextManager[object]] | None) -> None:
    """Have each defer of this process happen within what `tracer` gives; None ends that.

    The context is entered before anything is sent, when `headers` can be set, and left when the server has answered,
    with `job_ids` set or with the error.
    """
    global _around  # noqa: PLW0603 - one for the process, as a tracer provider is
    _around = tracer
