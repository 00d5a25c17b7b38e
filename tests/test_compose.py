"""compose.yaml without Docker: it has the services it should, and what they run works on a real server.

The commands are run as the containers would run them, with the file's own environment; only the server's address is
another. The image cannot be built here: what its Dockerfile copies is there, and is all that a wheel needs.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from asyncq import WorkerOptions
from tests.eventually import eventually
from tests.processes import Process
from tests.servers import Postgres

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "compose.yaml").read_text()

# As Compose does it: a variable that is not set takes its default. `$$` would be a dollar sign.
FILLED = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", TEXT)
COMPOSE: dict[str, Any] = yaml.safe_load(FILLED)
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE: str = SERVICES["worker"]["build"]["dockerfile_inline"]


def example() -> str:
    """The module that the image holds."""
    found = re.search(r"^COPY <<EOF example\.py\n(.*?)^EOF$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_services() -> None:
    assert list(SERVICES) == ["postgres", "migrate", "worker"]
    assert "$" not in FILLED
    assert set(re.findall(r"\$\{(\w+):-", TEXT)) == set(re.findall(r"^#   (\w+)  ", TEXT, re.MULTILINE))
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "no"
    assert SERVICES["worker"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["worker"]["build"] == SERVICES["migrate"]["build"]
    assert SERVICES["postgres"]["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    named = {mount.partition(":")[0] for mount in SERVICES["postgres"]["volumes"]}
    assert named == set(COMPOSE["volumes"])


def test_worker_has_the_time_to_stop() -> None:
    command: list[str] = SERVICES["worker"]["command"]
    grace = int(command[command.index("--grace") + 1])
    assert SERVICES["worker"]["stop_grace_period"] == f"{grace + 15}s"
    assert grace == WorkerOptions().grace.total_seconds()


def test_all_services_speak_of_one_database() -> None:
    server = SERVICES["postgres"]["environment"]
    for service in ("migrate", "worker"):
        client = SERVICES[service]["environment"]
        assert client["PGHOST"] == "postgres"
        assert client["PGDATABASE"] == server["POSTGRES_DB"]
        assert (client["PGUSER"], client["PGPASSWORD"]) == (server["POSTGRES_USER"], server["POSTGRES_PASSWORD"])


def test_dockerfile() -> None:
    lines = [line for line in DOCKERFILE.replace(example(), "").splitlines() if line and line != "EOF"]
    words = [line.split()[0] for line in lines]
    assert words[0] == "FROM"
    assert set(words) == {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT"}
    # In this form the command is process 1 itself, and gets the signals; a shell would keep them.
    assert lines[-1] == 'ENTRYPOINT ["asyncq"]'
    compile(example(), "example.py", "exec")


def test_dockerfile_copies_all_that_the_wheel_needs(tmp_path: Path) -> None:
    for line in DOCKERFILE.splitlines():
        if line.startswith("COPY ") and "<<" not in line:
            *sources, target = line.split()[1:]
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / source, tmp_path / target)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def environment(postgres: Postgres) -> Generator[dict[str, str]]:
    """The worker's environment, on the test's server: with the role and the database that the image would make."""
    given = dict(SERVICES["worker"]["environment"])
    user, database = sql.Identifier(given["PGUSER"]), sql.Identifier(given["PGDATABASE"])
    here = conninfo_to_dict(postgres.server.dsn)
    postgres.execute(sql.SQL("create role {} login password {}").format(user, sql.Literal(given["PGPASSWORD"])))
    postgres.execute(sql.SQL("create database {} owner {}").format(database, user))
    yield {**given, "PGHOST": str(here["host"]), "PGPORT": str(here["port"])}
    postgres.drop_database(postgres.dsn_of(given["PGDATABASE"]))
    postgres.execute(sql.SQL("drop role {}").format(user))


async def test_commands_run(environment: dict[str, str], tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "example.py").write_text(example())
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "ASYNCQ_", "DATABASE"))}

    def asyncq(arguments: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "asyncq", *arguments],
            cwd=app,
            env={**mine, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert asyncq(SERVICES["migrate"]["command"]).splitlines()[-1] == "schema asyncq is up to date"
    (exec_line,) = re.findall(r"^#   docker compose exec worker asyncq (.+)$", TEXT, re.MULTILINE)
    assert asyncq(shlex.split(exec_line)) == "1\n"
    arguments = ["-m", "asyncq", *SERVICES["worker"]["command"]]
    worker = Process(arguments, logs=tmp_path, env=environment, paths=[app], name="compose-worker")
    try:
        await eventually(lambda: worker.stdout == "hello, you\n", within=15, describe="the job runs")
        worker.terminate()
        assert await worker.wait() == 0
    finally:
        worker.reap()
    there: dict[str, Any] = {
        word: environment[name]
        for word, name in (
            ("host", "PGHOST"),
            ("port", "PGPORT"),
            ("dbname", "PGDATABASE"),
            ("user", "PGUSER"),
            ("password", "PGPASSWORD"),
        )
    }
    async with await psycopg.AsyncConnection.connect(**there) as connection:
        cursor = await connection.execute("select count(*) from asyncq.jobs")
        assert await cursor.fetchone() == (0,)
