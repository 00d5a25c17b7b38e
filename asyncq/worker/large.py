"""Arguments that claims leave out: each is read by itself, when its job starts.

A claim brings all its jobs in one answer, which would hold whatever somebody put in, and would fail as a whole where a
single text cannot be made. So what takes more than 64 KiB on the server's disk comes by a statement of its own, one job
at a time.
"""

import anyio
import psycopg

from asyncq.args import MAX_ARGS_BYTES, UndecodableArgsError
from asyncq.db import jobs
from asyncq.db.connection import Session
from asyncq.job import Lease
from asyncq.worker.trouble import Trouble, one_line

__all__ = ["LargeArgs"]

MOST_BYTES = 2 * MAX_ARGS_BYTES
"""`jsonb` gives a text back with spaces that it did not have."""

_UNREADABLE = ("54000", "XX000", "53200")
"""What the server says of a text that it cannot make: over a limit, too large to ask for, out of memory."""


class LargeArgs:
    """Read what claims left out."""

    def __init__(self, session: Session, schema: str) -> None:
        self._session = session
        self._schema = schema

    async def read(self, lease: Lease) -> str | None:
        """Give the arguments of a job, or None when its lease is lost. An absent database is waited for.

        Raises:
            UndecodableArgsError: they are longer than a handler is given, or the server cannot write them out.
        """
        trouble = Trouble("reading large arguments")
        while True:
            try:
                found = await jobs.args(self._session, self._schema, lease, most=MOST_BYTES)
            except (psycopg.Error, OSError, TimeoutError) as error:
                if isinstance(error, psycopg.Error) and error.sqlstate in _UNREADABLE:
                    raise UndecodableArgsError(f"the server cannot give the arguments: {one_line(error)}") from None
                await anyio.sleep(trouble.met(error, anyio.current_time()))
                continue
            if found is None:
                return None
            size, text = found
            if text is None:
                raise UndecodableArgsError(f"the arguments are {size:,} bytes of JSON; {MOST_BYTES:,} is the most")
            return text
