"""What the command line refuses: with the exit code for its kind, and a line that says what to do."""

import re
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from asyncq import __version__
from asyncq.db import rights
from tests.cli.run import Result, run
from tests.conftest import StartWorker
from tests.processes import Process
from tests.servers import Postgres, with_options

USAGE, SCHEMA, UNREACHABLE = 2, 3, 4

SOMEWHERE = "postgresql://app@localhost/nowhere"


def refused(result: Result, code: int, *says: str) -> None:
    """It ended with this code and an error that says these things, and printed nothing else, and no traceback."""
    assert result.code == code, result
    assert result.out == ""
    assert result.err.startswith("asyncq: "), result.err
    assert "Traceback" not in result.err
    assert len(result.err.splitlines()) <= 3
    assert "\\x0a" not in result.err, "a line break was printed as an escape"
    for each in says:
        assert each in result.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules, the current one."""
    monkeypatch.chdir(tmp_path)
    modules = {
        "shop_tasks": (
            "from asyncq import Queue\nemails = Queue('emails')\nreports = Queue('reports')\nnumber = 5\n"
            "@emails.task\nasync def send(user_id: int) -> None: ...\n"
        ),
        "no_queue": "x = 1\n",
        "needs_another": "import no_such_module_of_all\n",
        "fails": "x = 1\nraise RuntimeError('no settings\\nat all')\n",
        "exits": "import sys\nsys.exit(7)\n",
        "wrong_syntax": "def f(:\n",
        "wrong_task": "from asyncq import Queue\nq = Queue()\n@q.task\nasync def f(a) -> None: ...\n",
        "second_emails": "from asyncq import Queue\nemails = Queue('emails')\n",
        "other_schema": "from asyncq import Queue\nq = Queue('q', schema='other')\n",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


# --- Modules and queues -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("no_such_module", ["no module 'no_such_module'", "current folder"]),
        ("no_such.module.at_all", ["no module 'no_such.module.at_all'"]),
        ("shop_tasks.deeper", ["shop_tasks.deeper"]),
        ("shop_tasks.py", ["such as shop_tasks"]),
        ("./shop_tasks.py", ["such as shop_tasks"]),
        ("app/tasks.py", ["such as app.tasks"]),
        ("", ["module"]),
        (":emails", ["module"]),
        ("no_queue", ["no Queue in module 'no_queue'"]),
        ("shop_tasks:nothing", ["shop_tasks:nothing", "has no 'nothing'"]),
        ("shop_tasks:number", ["shop_tasks:number", "int"]),
        ("shop_tasks:send", ["shop_tasks:send", "Task"]),
        ("needs_another", ["needs_another", "no_such_module_of_all", "needs_another.py, line 1"]),
        ("fails", ["RuntimeError", "no settings", "fails.py, line 2"]),
        ("exits", ["exits", "SystemExit", "exits.py, line 2"]),
        ("wrong_syntax", ["wrong_syntax", "SyntaxError"]),
        ("wrong_task", ["'a'", "annotation", "wrong_task.py"]),
        ("\x1b[31mred", ["\\x1b[31mred"]),
    ],
)
def test_a_module_that_cannot_be_used_is_named_with_the_reason(here: Path, module: str, says: Sequence[str]) -> None:
    result = run("worker", module, dsn=SOMEWHERE)
    refused(result, USAGE, *says)
    assert "\x1b" not in result.err


def test_an_unknown_queue_is_told_which_there_are(here: Path) -> None:
    refused(run("worker", "shop_tasks", "--queue", "mails", dsn=SOMEWHERE), USAGE, "'mails'", "emails", "reports")


def test_two_queues_of_one_name_are_refused(here: Path) -> None:
    refused(run("worker", "shop_tasks", "second_emails", dsn=SOMEWHERE), USAGE, "'emails'")


def test_schemas_that_differ_are_refused(here: Path) -> None:
    refused(run("worker", "shop_tasks", "other_schema", dsn=SOMEWHERE), USAGE, "schema")
    refused(run("worker", "other_schema", "--schema", "third", dsn=SOMEWHERE), USAGE, "third", "other")
    refused(run("worker", "shop_tasks", "--schema", 'x"; drop table t', dsn=SOMEWHERE), USAGE, "schema")


# --- Numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--concurrency", "0"),
        ("--concurrency", "-1"),
        ("--concurrency", "10001"),
        ("--concurrency", "1.5"),
        ("--concurrency", "many"),
        ("--concurrency", "9" * 5_000),
        ("--poll", "-1"),
        ("--poll", "0"),
        ("--poll", "0.01"),
        ("--poll", "nan"),
        ("--poll", "inf"),
        ("--poll", "1e308"),
        ("--poll", "x"),
        ("--grace", "-0.1"),
        ("--grace", "nan"),
        ("--cleanup", "0"),
        ("--cleanup", "-inf"),
        ("--stall-leases", "0"),
        ("--max-jobs", "0"),
        ("--max-jobs", "1000000001"),
        ("--no-such-option",),
        ("--conc", "5"),
    ],
    ids=lambda arguments: " ".join(arguments)[:30],
)
def test_a_number_that_cannot_be_is_refused_with_the_options_name(here: Path, arguments: Sequence[str]) -> None:
    result = run("worker", "shop_tasks", *arguments, dsn=SOMEWHERE)
    assert result.code == USAGE
    assert "Traceback" not in result.err
    assert arguments[0].lstrip("-") in result.err.splitlines()[-1].replace("_", "-")


@pytest.mark.parametrize(
    "arguments", [(), ("no-such-command",), ("worker",), ("defer",), ("discarded",), ("migrate", "extra")]
)
def test_a_wrong_use_is_told_the_right_one(arguments: Sequence[str]) -> None:
    result = run(*arguments)
    assert result.code == USAGE
    assert "usage: asyncq" in result.err


@pytest.mark.parametrize(
    "arguments", [("--help",), ("worker", "--help"), ("migrate", "-h"), ("defer", "-h"), ("replay", "-h")]
)
def test_help_helps(arguments: Sequence[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert "usage: asyncq" in result.out


def test_the_version_is_told() -> None:
    assert run("--version") == Result(0, f"asyncq {__version__}\n", "")


# --- The database -----------------------------------------------------------------------------------------------------

COMMANDS = [
    ("worker", "shop_tasks"),
    ("migrate",),
    ("migrate", "--check"),
    ("defer", "t"),
    ("discarded", "q"),
    ("replay", "q"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_without_a_dsn_it_says_how_to_give_one(here: Path, command: Sequence[str]) -> None:
    refused(run(*command), USAGE, "--dsn", "ASYNCQ_DSN", "DATABASE_URL", "PGHOST")
    refused(run(*command, env={"ASYNCQ_DSN": "", "DATABASE_URL": ""}), USAGE, "--dsn")


SECRETS = [
    "postgresql://app:Hunter2Hunter2@host:5432:5432/shop",
    "postgresql://app:Hunter2@Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2/Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2?Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2#Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2%Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2:Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2 Hunter2@localhost:1/shop",
    "postgresql://app:Hunter2@localhost:99999/shop",
    "postgresql://app:Hunter2@localhost:x/shop",
    "host=localhost port=1 password=Hunter2 nonsense",
    "host=localhost port=1 password=Hunter2 no_such_word=1",
    "host=localhost port=1 password='Hunter2",
    "mysql://app:Hunter2@localhost/shop",
    "Hunter2",
]


@pytest.mark.parametrize("dsn", SECRETS)
@pytest.mark.parametrize("command", [("migrate",), ("discarded", "q")], ids=" ".join)
def test_whatever_is_wrong_with_a_dsn_no_part_of_its_password_is_shown(dsn: str, command: Sequence[str]) -> None:
    for result in (run(*command, "--dsn", dsn), run(*command, env={"DATABASE_URL": dsn})):
        assert result.code in (USAGE, UNREACHABLE), result
        assert "Traceback" not in result.err
        assert len(result.err.splitlines()) == 1
        assert "Hunter2" not in result.err.replace("no_such_word", "")
        assert result.out == ""


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.mark.parametrize("command", [each for each in COMMANDS if each[0] != "worker"], ids=" ".join)
def test_a_server_that_is_down_is_its_own_exit_code(closed_port: int, command: Sequence[str]) -> None:
    dsn = f"postgresql://app:secret@127.0.0.1:{closed_port}/shop"
    result = run(*command, dsn=dsn)
    refused(result, UNREACHABLE, "cannot be reached", str(closed_port))
    assert "secret" not in result.err


@pytest.mark.once
async def test_a_worker_waits_a_while_for_a_server_that_is_down(
    start_worker: StartWorker, here: Path, closed_port: int
) -> None:
    worker = start_worker("shop_tasks", dsn=f"postgresql://app:secret@127.0.0.1:{closed_port}/shop")
    await worker.wait_for("trying again")
    assert await worker.wait(within=30) == UNREACHABLE
    last = worker.stderr.splitlines()[-1]
    assert last.startswith("asyncq: the database cannot be reached")
    assert "Traceback" not in worker.stderr
    assert "secret" not in worker.stderr
    assert worker.stderr.count("WARNING") == 1


def test_a_database_that_does_not_exist_is_named(postgres: Postgres) -> None:
    result = run("migrate", dsn=postgres.dsn_of("no_such_database"))
    refused(result, UNREACHABLE, "no_such_database")


@pytest.mark.parametrize("command", [("defer", "t"), ("discarded", "q"), ("replay", "q")], ids=" ".join)
def test_a_database_without_the_schema_is_told_to_migrate(empty_dsn: str, command: Sequence[str]) -> None:
    refused(run(*command, dsn=empty_dsn), SCHEMA, "asyncq migrate")


async def test_a_worker_on_a_database_without_the_schema_ends_at_once_with_one_line(
    start_worker: StartWorker, here: Path, empty_dsn: str
) -> None:
    worker = start_worker("shop_tasks", dsn=empty_dsn)
    assert await worker.wait() == SCHEMA
    assert worker.stderr == "asyncq: there is no schema 'asyncq' in this database: run 'asyncq migrate' first\n"
    assert worker.stdout == ""


async def test_a_worker_older_than_the_schema_wants_ends_with_one_line(
    start_worker: StartWorker, here: Path, dsn: str, conn: psycopg.AsyncConnection
) -> None:
    await conn.execute("insert into asyncq.migrations (version, name, oldest_release) values (9999, 'x', '99.0.0')")
    worker = start_worker("shop_tasks")
    assert await worker.wait() == SCHEMA
    assert len(worker.stderr.splitlines()) == 1
    assert "99.0.0" in worker.stderr
    assert "upgrade" in worker.stderr


@contextmanager
def outsider(dsn: str) -> Generator[str]:
    """A role without any right, named so that it has to be quoted; gives a DSN with its rights."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute('create role "Out sider"')
        try:
            yield with_options(dsn, options="-c role=Out\\ sider")
        finally:
            admin.execute('drop owned by "Out sider" cascade')
            admin.execute('drop role "Out sider"')


def obey(dsn: str, error: str) -> str:
    """Run the grants that an error names; gives them."""
    (grants,) = re.findall(r"""asyncq: role "Out sider" lacks (?:a right|rights): run '(grant .+)'\n$""", error)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(grants.encode())
    return grants


TO = 'to "Out sider"'
WORKERS = f"grant select on asyncq.workers {TO}"
RECORDED = f"grant select on asyncq.queues {TO}; grant insert on asyncq.job_history {TO}"
EXPLAINED = ", ".join(rights.EXPLAINS[1].columns)
OUTLINE = (
    "select (id, queue, task, state, priority, attempts, max_attempts, lease_seconds, run_at, created_at, attempted_at,"
    " finished_at)"
)
COUNTS = "select (id, queue, state, priority, run_at, attempted_at, finished_at)"


@pytest.mark.parametrize(
    ("command", "grants"),
    [
        (
            ("defer", "t"),
            f"grant usage on schema asyncq {TO}; grant insert, select (id, queue, run_at) on asyncq.jobs {TO}",
        ),
        (("discarded", "q"), f"grant usage on schema asyncq {TO}; grant select on asyncq.jobs {TO}"),
        (("replay", "q"), f"grant usage on schema asyncq {TO}; grant select, update on asyncq.jobs {TO}; {RECORDED}"),
        (
            ("explain", "1"),
            f"grant usage on schema asyncq {TO}; grant select ({EXPLAINED}) on asyncq.jobs {TO}; {WORKERS}",
        ),
        (("run-now", "q", "1"), f"grant usage on schema asyncq {TO}; grant select, update on asyncq.jobs {TO}"),
        (
            ("cancel", "q", "1"),
            f"grant usage on schema asyncq {TO}; grant select, update on asyncq.jobs {TO}; {RECORDED}",
        ),
        (
            ("purge", "q", "--yes"),
            f"grant usage on schema asyncq {TO}; grant select, update, delete on asyncq.jobs {TO}",
        ),
        (("status",), f"grant usage on schema asyncq {TO}; grant {COUNTS} on asyncq.jobs {TO}"),
        (("jobs", "q"), f"grant usage on schema asyncq {TO}; grant {OUTLINE} on asyncq.jobs {TO}"),
        (("jobs", "q", "--arg", "a=1"), f"grant usage on schema asyncq {TO}; grant select on asyncq.jobs {TO}"),
        (("show", "1"), f"grant usage on schema asyncq {TO}; grant {OUTLINE} on asyncq.jobs {TO}"),
        (("migrate", "--check"), f"grant usage on schema asyncq {TO}; grant select on asyncq.migrations {TO}"),
        (("migrate", "--sql"), f"grant usage on schema asyncq {TO}; grant select on asyncq.migrations {TO}"),
        (("migrate",), f"grant usage, create on schema asyncq {TO}; grant select on asyncq.migrations {TO}"),
    ],
    ids=[
        "defer",
        "discarded",
        "replay",
        "explain",
        "run-now",
        "cancel",
        "purge",
        "status",
        "jobs",
        "jobs --arg",
        "show",
        "check",
        "sql",
        "migrate",
    ],
)
def test_a_missing_right_is_one_line_with_the_grant_that_mends_it(
    dsn: str, command: Sequence[str], grants: str
) -> None:
    with outsider(dsn) as theirs:
        result = run(*command, dsn=theirs)
        refused(result, USAGE)
        assert obey(dsn, result.err) == grants
        assert run(*command, dsn=theirs).code == 0
        # Of what is missing only that is named.
        with psycopg.connect(dsn, autocommit=True) as admin:
            last = grants.rpartition("; ")[2]
            admin.execute(last.replace("grant", "revoke").replace(" to ", " from ").encode())
        again = run(*command, dsn=theirs)
        refused(again, USAGE)
        assert obey(dsn, again.err) == last


def test_rights_on_each_column_are_rights_on_the_table(dsn: str) -> None:
    with outsider(dsn) as theirs, psycopg.connect(dsn, autocommit=True) as admin:
        names = (
            "select string_agg(attname, ', ') from pg_attribute where attrelid = 'asyncq.jobs'::regclass and attnum > 0"
        )
        columns = admin.execute(names).fetchall()[0][0]
        admin.execute(f"grant usage on schema asyncq {TO}; grant select ({columns}) on asyncq.jobs {TO}".encode())
        assert run("discarded", "q", dsn=theirs).code == 0
        admin.execute('revoke select (last_error) on asyncq.jobs from "Out sider"')
        result = run("discarded", "q", dsn=theirs)
        refused(result, USAGE)
        assert obey(dsn, result.err) == f"grant select on asyncq.jobs {TO}"


def test_one_column_too_few_is_a_missing_right(dsn: str) -> None:
    with outsider(dsn) as theirs, psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(
            f"grant usage on schema asyncq {TO}; grant insert, select (id, queue) on asyncq.jobs {TO}".encode()
        )
        result = run("defer", "t", dsn=theirs)
        refused(result, USAGE)
        assert obey(dsn, result.err) == f"grant select (id, queue, run_at) on asyncq.jobs {TO}"
        assert run("defer", "t", dsn=theirs).code == 0


def test_who_migrates_is_told_which_right_is_missing(empty_dsn: str) -> None:
    with outsider(empty_dsn) as theirs:
        result = run("migrate", dsn=theirs)
        refused(result, USAGE)
        database = conninfo_to_dict(empty_dsn)["dbname"]
        assert obey(empty_dsn, result.err) == f"grant create on database {database} {TO}"
        assert run("migrate", dsn=theirs).code == 0


def test_a_refusal_that_no_grant_mends_is_the_databases_own_line(dsn: str) -> None:
    with outsider(dsn) as theirs, psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"grant usage on schema asyncq {TO}; grant all on all tables in schema asyncq {TO}".encode())
        admin.execute("alter table asyncq.jobs enable row level security")
        refused(run("defer", "t", dsn=theirs), USAGE, "a right is missing", "row-level security", "jobs")


async def test_a_worker_that_lacks_rights_says_so_at_the_start(start_worker: StartWorker, here: Path, dsn: str) -> None:
    with outsider(dsn) as theirs:
        worker = start_worker("shop_tasks", dsn=theirs)
        assert await worker.wait() == USAGE
        assert obey(dsn, worker.stderr) == (
            f"grant usage on schema asyncq {TO}; grant select, update, delete on asyncq.jobs {TO};"
            f" grant select on asyncq.migrations {TO}; grant select, insert, update, delete on asyncq.workers {TO};"
            f" grant select, insert, update on asyncq.queues {TO}; grant insert on asyncq.job_history {TO};"
            f" grant select, insert, update, delete on asyncq.activity {TO};"
            f" grant select, insert, update, delete on asyncq.depths {TO}"
        )
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute('revoke delete on asyncq.jobs from "Out sider"')
        worker = start_worker("shop_tasks", dsn=theirs)
        assert await worker.wait() == USAGE
        assert worker.stderr == f"asyncq: role \"Out sider\" lacks a right: run 'grant delete on asyncq.jobs {TO}'\n"
        obey(dsn, worker.stderr)
        # What it asks for is all that it needs.
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("select asyncq.defer('shop_tasks.send', '{\"user_id\": 1}', 'emails')")
            assert await start_worker("shop_tasks", "--burst", dsn=theirs).wait() == 0
            assert admin.execute("select count(*) from asyncq.jobs").fetchone() == (0,)


def test_dsns_are_taken_in_order_and_in_other_libraries_forms(dsn: str, closed_port: int) -> None:
    wrong = f"postgresql://127.0.0.1:{closed_port}/x"
    assert run("migrate", "--check", "--dsn", dsn, env={"ASYNCQ_DSN": wrong, "DATABASE_URL": wrong}).code == 0
    assert run("migrate", "--check", env={"ASYNCQ_DSN": dsn, "DATABASE_URL": wrong}).code == 0
    for driver in ("postgresql+psycopg", "postgresql+asyncpg", "postgres"):
        as_others = driver + "://" + dsn.partition("://")[2]
        assert run("migrate", "--check", env={"DATABASE_URL": as_others}).code == 0, driver


def test_libpqs_own_variables_are_taken(dsn: str) -> None:
    words = conninfo_to_dict(dsn)
    env = {f"PG{name.upper()}": str(words[name]) for name in ("host", "port", "user", "password") if name in words}
    env["PGDATABASE"] = str(words["dbname"])
    assert run("migrate", "--check", env=env).code == 0


async def test_output_that_nobody_reads_is_no_error(dsn: str, conn: psycopg.AsyncConnection, tmp_path: Path) -> None:
    await conn.execute(
        "insert into asyncq.jobs (queue, task, args, state, finished_at, last_error)"
        " select 'q', 't', jsonb_build_object('x', repeat('x', 1000)), 'discarded', now(), 'e'"
        " from generate_series(1, 500)"
    )
    script = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'asyncq', 'discarded', 'q', '--limit', '500'],"
        " stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "p.stdout.readline(); p.stdout.close()\n"
        "sys.stderr.write(p.stderr.read().decode()); sys.exit(p.wait())\n"
    )
    reader = Process(["-c", script], logs=tmp_path, env={"ASYNCQ_DSN": dsn})
    try:
        assert await reader.wait() == 0
        assert reader.stderr == ""
    finally:
        reader.reap()
