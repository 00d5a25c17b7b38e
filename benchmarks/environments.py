"""The systems there are, as their modules' heads describe them, and the environment that each one runs in."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SYSTEMS = Path(__file__).parent / "systems"

# As in the specification of inline script metadata.
HEAD = re.compile(r"^# /// script$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///$", re.MULTILINE)

ORDER = ["raw", "asyncq", "pgqueuer", "awa", "chancy", "oban", "procrastinate", "saq", "streaq", "arq"]
"""The order of columns; a module that is not named here comes last."""


class EnvironmentFailedError(Exception):
    """A system cannot be measured here; the message is what the results say in the place of figures."""


@dataclass(frozen=True, slots=True)
class Description:
    """A system, as its head describes it."""

    name: str
    title: str
    store: str
    requirements: tuple[str, ...]
    python: str
    own: bool
    limit: bool
    default: dict[str, Any]
    tuned: list[dict[str, Any]]

    @property
    def module(self) -> str:
        return f"benchmarks.systems.{self.name}"


@cache
def descriptions() -> dict[str, Description]:
    """Read the heads of all systems' modules."""
    found: dict[str, Description] = {}
    for path in SYSTEMS.glob("*.py"):
        if match := HEAD.search(path.read_text(encoding="utf-8")):
            lines = match["content"].splitlines()
            head = tomllib.loads("\n".join(line[2:] for line in lines))
            own = head["tool"]["benchmarks"]
            found[path.stem] = Description(
                name=path.stem,
                title=own["title"],
                store=own["store"],
                requirements=tuple(head["dependencies"]),
                python=head["requires-python"],
                own=own.get("own", False),
                limit=own.get("limit", False),
                default=own["default"],
                tuned=own["tuned"],
            )
    place = {name: number for number, name in enumerate(ORDER)}
    return dict(sorted(found.items(), key=lambda item: (place.get(item[0], len(ORDER)), item[0])))


def default_directory() -> Path:
    """Where environments are kept, outside of the checkout."""
    cached = os.environ.get("XDG_CACHE_HOME")
    return (Path(cached) if cached else Path.home() / ".cache") / "asyncq-benchmarks"


def python_of(system: Description, directory: Path, say: Callable[[str], None]) -> Path:
    """Give the Python of a system's environment, which is made if it is not there yet.

    Raises:
        EnvironmentFailedError: it cannot be made.
    """
    if system.own:
        return Path(sys.executable)
    environment = directory / system.name
    stamp = environment / "complete"
    wanted = "\n".join((system.python, *system.requirements))
    python = environment / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making the environment of {system.name}: {' '.join(system.requirements)}")
    shutil.rmtree(environment, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    _run([base_python(system), "-m", "venv", environment])
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *system.requirements])
    stamp.write_text(wanted)
    return python


def versions(python: Path) -> dict[str, str]:
    """What is installed in an environment, and its Python."""
    script = (
        "import importlib.metadata as m, json, platform;"
        "print(json.dumps({'python': platform.python_version()}"
        " | {d.name.lower(): d.version for d in m.distributions() if d.name}))"
    )
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    found: dict[str, str] = dict(sorted(json.loads(done.stdout).items()))
    return found


def base_python(system: Description) -> str | Path:
    """Find a Python that the system supports: our own, else one of PATH or of pyenv."""
    least = tuple(map(int, re.findall(r"\d+", system.python)[:2]))
    if sys.version_info[:2] >= least:
        return getattr(sys, "_base_executable", sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(least[1], least[1] + 4):
        version = f"{least[0]}.{minor}"
        for candidate in [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
            check = [candidate, "-c", f"import sys, ensurepip; sys.exit(sys.version_info[:2] != {(least[0], minor)})"]
            if candidate and subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 0:
                return candidate
    raise EnvironmentFailedError(f"needs Python {system.python}, which is not on this machine")


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise EnvironmentFailedError(f"its environment could not be made: {said[-1] if said else done.returncode}")
