"""The command line: a command is a module with `add`, which declares it, and a function that runs it.

It owns what a library must not touch: signals, logging's set-up, the event loop's policy and the exit code, which
a command gives.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

import psycopg

from asyncq.cli import dead_letters, defer, demo, dev, doctor, explain, history, jobs, migrate, operate, status, worker
from asyncq.cli.log import printable
from asyncq.errors import AsyncqError, SchemaOutdatedError
from asyncq.release import __version__
from asyncq.worker import ExitCode

__all__ = ["main"]

USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code.

    0 done; 1 an internal loop of the worker died, or the database refused; 2 wrong use or configuration, or a right is
    missing; 3 the schema is missing or does not fit; 4 the server cannot be reached; 5 stopped at once by a second
    signal; 6 handlers that would not end.
    """
    parser = argparse.ArgumentParser(prog="asyncq", description="A job queue on plain PostgreSQL.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"asyncq {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (worker, migrate, defer, status, jobs, history, explain, doctor, dead_letters, operate, demo, dev):
        command.add(commands)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except SchemaOutdatedError as error:
        return _refused(error, ExitCode.SCHEMA)
    except AsyncqError as error:
        return _refused(error, USAGE)
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction) as error:
        return _refused(f"{_first_line(error)}: run 'asyncq migrate' first?", ExitCode.SCHEMA)
    except psycopg.errors.InsufficientPrivilege as error:
        return _refused(f"a right is missing, see Permissions in the README: {_first_line(error)}", USAGE)
    except (psycopg.OperationalError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has gone, as `head` does.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _refused(f"the database cannot be reached: {_first_line(error)}", ExitCode.UNREACHABLE)
    except psycopg.Error as error:
        return _refused(_first_line(error), ExitCode.FAILED)
    except KeyboardInterrupt:
        return 130


def _refused(reason: object, code: int) -> int:
    for line in f"asyncq: {reason}".splitlines():
        print(printable(line), file=sys.stderr)
    return code


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
