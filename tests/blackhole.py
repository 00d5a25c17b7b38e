"""A proxy before PostgreSQL that can fall silent: it keeps connections open and acknowledges, and forwards nothing."""

from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from psycopg.conninfo import conninfo_to_dict, make_conninfo

__all__ = ["BlackHole"]


class BlackHole:
    """Forward connections to a server until `swallow` is called: those that are open then are never answered again.

    Connections made afterwards work.
    """

    def __init__(self, dsn: str) -> None:
        self._target: dict[str, Any] = dict(conninfo_to_dict(dsn))
        self._group: TaskGroup | None = None
        self._age = 0
        self.dsn = dsn

    async def __aenter__(self) -> Self:
        self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = self._listener.extra(anyio.abc.SocketAttribute.local_port)
        self.dsn = make_conninfo(make_conninfo(**self._target), host="127.0.0.1", port=port)
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        try:
            return await self._group.__aexit__(kind, error, trace)
        finally:
            await self._listener.aclose()

    def swallow(self) -> None:
        """Forward nothing more on the connections that are open now."""
        self._age += 1

    async def _serve(self, client: SocketStream) -> None:
        born = self._age
        async with client:
            server = await anyio.connect_tcp(str(self._target["host"]), int(str(self._target["port"])))
            async with server, anyio.create_task_group() as both:
                both.start_soon(self._forward, client, server, born, both)
                both.start_soon(self._forward, server, client, born, both)

    async def _forward(self, source: ByteStream, target: ByteStream, born: int, both: TaskGroup) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                if self._age == born:
                    await target.send(data)
        both.cancel_scope.cancel()
