"""What commands that change jobs share: ids from the command line or from standard input, and asking before much."""

import argparse
import sys
from collections.abc import Sequence

from asyncq import ranges
from asyncq.errors import ConfigurationError, InvalidArgsError

__all__ = ["add_ids", "add_sure", "agreed", "asks", "can_ask", "ids_of", "report"]

MANY = 100
"""From more ids than this, read from standard input, somebody is asked first."""


def add_ids(parser: argparse.ArgumentParser, *, nargs: str, what: str) -> None:
    """Declare the ids."""
    parser.add_argument("ids", nargs=nargs, metavar="ID", help=f"{what}; - reads them from standard input")


def add_sure(parser: argparse.ArgumentParser) -> None:
    """Declare --dry-run and --yes."""
    parser.add_argument("--dry-run", action="store_true", help="only say how many jobs it would be about")
    parser.add_argument("--yes", action="store_true", help="do not ask, however many they are")


def ids_of(options: argparse.Namespace) -> list[int]:
    """Read the ids, those on standard input by white space between them.

    Raises:
        InvalidArgsError: one is no id.
    """
    words: list[str] = []
    for given in options.ids:
        words += sys.stdin.read().split() if given == "-" else [given]
    found: list[object] = []
    for word in words:
        # As int() takes it, an id might have thousands of digits, or be written with underscores.
        if not (word.isascii() and word.isdecimal() and len(word) < 20):
            raise InvalidArgsError(f"an id must be a whole number, not {word!r:.100}")
        found.append(int(word))
    return ranges.ids("the ids", found, InvalidArgsError)


def asks(options: argparse.Namespace, ids: Sequence[int]) -> bool:
    """Say whether so many ids came from standard input that somebody is to be asked."""
    return "-" in options.ids and len(ids) > MANY


def can_ask() -> bool:
    """Say whether somebody sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(options: argparse.Namespace, question: str) -> bool:
    """Ask on a terminal whether to go on, unless --yes is given.

    Args:
        options: with `yes`.
        question: such as "delete 5 jobs of queue emails".

    Raises:
        ConfigurationError: there is no terminal, and no --yes.
    """
    if options.yes:
        return True
    if can_ask():
        print(f"{question}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return True
        print("asyncq: nothing was changed", file=sys.stderr)
        return False
    raise ConfigurationError(f"{question}? There is no terminal to ask on: give --yes, or --dry-run to see how many")


def report(changed: Sequence[int], wanted: Sequence[int], reason: str) -> None:
    """Print the ids that were changed, and name the others of those that were wanted."""
    for job_id in changed:
        print(job_id)
    missed = sorted(set(wanted) - set(changed))
    if missed:
        print(f"asyncq: {reason}: {', '.join(map(str, missed))}", file=sys.stderr)
