"""Which Python files of a folder have changed, as they change: `watchfiles`, where it is installed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio

__all__ = ["ReloadOffError", "any_of", "changes"]

DEBOUNCE_MILLISECONDS = 400
"""Files saved together, by an editor or by git, are one change; a database that writes nearby must not delay it."""


class ReloadOffError(Exception):
    """Files cannot be watched here; the message says why."""


async def changes(folder: Path, *, until: anyio.Event) -> AsyncIterator[str]:
    """Give the names of changed Python files below a folder, some at a time, until the event is set.

    Raises:
        ReloadOffError: `watchfiles` is missing, or the system does not let us watch.
    """
    try:
        # Imported here, because every `asyncq worker` would pay for it, and the extra may be missing.
        from watchfiles import PythonFilter, awatch  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType] - an extra, partly untyped
    except ImportError:
        raise ReloadOffError("it needs watchfiles: pip install 'asyncq[cli]'") from None
    watched = awatch(
        folder,
        watch_filter=PythonFilter(),
        debounce=DEBOUNCE_MILLISECONDS,
        stop_event=until,
        ignore_permission_denied=True,
    )
    try:
        async for changed in watched:
            paths = sorted({Path(path) for _, path in changed})
            names = [str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in paths]
            yield ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    except (OSError, RuntimeError) as error:  # the system's limits, and watchfiles' word for them
        raise ReloadOffError(str(error)) from error


async def any_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait for the first of several to come back; the others are cancelled."""
    async with anyio.create_task_group() as group:

        async def first(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            group.cancel_scope.cancel()

        for wait in waits:
            group.start_soon(first, wait)
