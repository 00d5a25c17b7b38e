"""Run a command of the command line in this process, as a shell would see it: exit code, output, errors."""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from asyncq.cli import main

__all__ = ["Result", "run"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a shell sees of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines that were printed."""
        return self.out.splitlines()


@contextlib.contextmanager
def _as_before() -> Generator[None]:
    """Undo what a process of its own would take with it."""
    environ, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    given = sys.stdin
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not name.startswith(("asyncq", "psycopg", "encodings")):
                del sys.modules[name]
        root.handlers[:] = handlers
        sys.stdin = given
        root.setLevel(level)


def run(*arguments: str, dsn: str | None = None, env: Mapping[str, str] | None = None, stdin: str = "") -> Result:
    """Run `asyncq` with these arguments; variables that name a database come from `dsn` and `env` alone.

    There is no terminal: `stdin` is what it reads.
    """
    out, err = io.StringIO(), io.StringIO()
    with _as_before(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for name in list(os.environ):
            if name.startswith(("PG", "ASYNCQ_")) or name == "DATABASE_URL":
                del os.environ[name]
        if dsn is not None:
            os.environ["ASYNCQ_DSN"] = dsn
        os.environ.update(env or {})
        sys.stdin = io.StringIO(stdin)
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Result(int(code), out.getvalue(), err.getvalue())
