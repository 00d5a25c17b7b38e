"""What one worker serves and can run: queues and tasks by name, checked to fit together."""

from collections.abc import Iterable, Mapping
from typing import Any

from asyncq.errors import ConfigurationError, TaskAlreadyRegisteredError
from asyncq.queue import Queue
from asyncq.task import Task

__all__ = ["by_name", "checked_queues", "tasks_of"]


def checked_queues(queues: object) -> list[Queue]:
    """Give the queues of a worker.

    Raises:
        ConfigurationError: there is none, or something that is no Queue.
    """
    if isinstance(queues, Queue) or not isinstance(queues, Iterable):
        raise ConfigurationError(f"a worker takes several queues, such as [emails], not {queues!r:.100}")
    served: list[object] = list(queues)
    for queue in served:
        if not isinstance(queue, Queue):
            raise ConfigurationError(f"a worker takes Queue objects, not {queue!r:.100}")
    if not served:
        raise ConfigurationError("a worker needs at least one queue")
    return [queue for queue in served if isinstance(queue, Queue)]


def by_name(queues: list[Queue]) -> Mapping[str, Queue]:
    """Give the queues by name, in their order.

    Raises:
        ConfigurationError: two of one name, or of two schemas.
    """
    named: dict[str, Queue] = {}
    for queue in queues:
        if named.setdefault(queue.name, queue) is not queue:
            raise ConfigurationError(
                f"there are two Queue objects named {queue.name!r}: put the tasks of both on one shared object"
            )
    schemas = sorted({queue.schema for queue in queues})
    if len(schemas) > 1:
        raise ConfigurationError(f"the queues of one worker must be in one schema, these are in {', '.join(schemas)}")
    return named


def tasks_of(queues: Iterable[Queue]) -> Mapping[str, Task[..., Any]]:
    """Give the tasks of several queues by name.

    Raises:
        TaskAlreadyRegisteredError: two of them have one name.
    """
    known: dict[str, Task[..., Any]] = {}
    for queue in dict.fromkeys(queues):
        for name, task in queue.tasks.items():
            if known.setdefault(name, task) is not task:
                raise TaskAlreadyRegisteredError(
                    f"two tasks are called {name!r}, on queues {known[name].settings.queue!r} and {queue.name!r}:"
                    " give one of them a name="
                )
    return known
