"""Find and read the statements under `sql/`, for one schema.

The files say `asyncq.` wherever they name an object. `load` replaces exactly that token by the quoted name of the
schema in use; nothing else is ever put into SQL text. Schema names are checked first, so that quoting is all they need.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import LiteralString, cast

from asyncq.errors import ConfigurationError

__all__ = ["checked_schema", "load", "sql_folder"]

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def checked_schema(name: object) -> str:
    """Give the name of a schema back, or refuse it.

    Raises:
        ConfigurationError: not lower-case letters, digits and underscores, longer than 63, or reserved.
    """
    if not isinstance(name, str) or not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise ConfigurationError(
            f"a schema is named by 1 to 63 lower-case letters, digits and underscores, not starting with a digit or"
            f" pg_; got {name!r:.100}"
        )
    return name


def sql_folder() -> Traversable:
    """The folder `sql`: inside the installed package, or beside it in a checkout."""
    installed = files("asyncq") / "sql"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "sql"


def in_schema(text: str, schema: str) -> LiteralString:
    """Put the schema into a text of the project's own."""
    text = text.replace("asyncq.", f'"{checked_schema(schema)}".')
    # Vouched for here, once: the text comes from a file of the package, and the schema's name was checked.
    return cast("LiteralString", text)


@cache
def load(name: str, schema: str, **instead: str) -> LiteralString:
    """Read one statement, such as `jobs/claim`, without its comments.

    A line `-- include retired` stands for the text of `sql/parts/retired.sql`; a comma behind it follows that text.
    Another part can take its place: `retired="recorded"`.
    """
    return in_schema("\n".join(_lines(sql_folder() / "queries" / f"{name}.sql", instead)), schema)


def _lines(file: Traversable, instead: Mapping[str, str]) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        if included := re.fullmatch(r"-- include (\w+)(,?)", line):
            part = instead.get(included[1], included[1])
            yield from _lines(sql_folder() / "parts" / f"{part}.sql", instead)
            yield included[2]
        elif not line.lstrip().startswith("--"):
            yield line
