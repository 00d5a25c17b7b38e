"""README is the tutorial, and what it shows is run here: each Python and SQL block, each command line, each number.

Python blocks that begin with a file's name are written as that file; all others are run in the order of the page, in
one namespace, on a real database. Only the block for SQLAlchemy, which asyncq does not depend on, needs it installed.
"""

import argparse
import ast
import importlib
import importlib.util
import inspect
import logging
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, LiteralString, NoReturn, cast

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg_pool import AsyncConnectionPool

from asyncq import ExitCode, Queue, RetryPolicy, Worker, WorkerOptions, cli
from asyncq.db.migrate import migrate
from tests.eventually import eventually
from tests.servers import Postgres, with_options

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

Namespace = dict[str, Any]


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is, if its first line says so."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named[1] if named else None


def blocks(language: str) -> list[Block]:
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    all_blocks = [Block(each[1], each[2], README.count("\n", 0, each.start()) + 1) for each in found]
    assert {block.language for block in all_blocks} == {"python", "sql", "sh"}
    return [block for block in all_blocks if block.language == language]


def only(language: str, containing: str) -> Block:
    (block,) = (block for block in blocks(language) if containing in block.text)
    return block


async def execute(connection: psycopg.AsyncConnection, block: Block) -> list[Any]:
    """Run a block of SQL, statement by statement; gives the last one's rows."""
    rows: list[Any] = []
    for statement in filter(str.strip, re.split(r";\s*$", block.text, flags=re.MULTILINE)):
        cursor = await connection.execute(cast("LiteralString", statement))
        rows = await cursor.fetchall() if cursor.description else []
    return rows


async def run(block: Block, namespace: Namespace) -> None:
    """Run a block of Python; it may await at its top."""
    source = "\n" * block.line + block.text
    code = compile(source, ROOT / "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    root = logging.getLogger()
    handlers = list(root.handlers)
    try:
        result: object = eval(code, namespace)
        if inspect.isawaitable(result):
            await result
    finally:
        # A block that sets logging up does so for a process of its own.
        root.handlers[:] = handlers


@pytest.fixture
async def shop(
    dsn: str, conn: psycopg.AsyncConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Path]:
    """A folder with README's files, importable here, and a database with its table."""
    files = [block for block in blocks("python") if block.file]
    assert [block.file for block in files] == ["hello.py", "shop.py", "web.py", "queues.py"]
    for block in files:
        (tmp_path / str(block.file)).write_text(block.text)
    await execute(conn, only("sql", "create table orders"))
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.delenv("ASYNCQ_DSN", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in ("hello", "shop", "web", "queues"):
        sys.modules.pop(name, None)


def asyncq(folder: Path, line: str) -> str:
    """Run a command line as a user in that folder would."""
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)], cwd=folder, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


async def count(conn: psycopg.AsyncConnection, what: LiteralString) -> int:
    cursor = await conn.execute(f"select count(*) from {what}")
    row = await cursor.fetchone()
    assert row is not None
    return row[0]


async def test_hello(shop: Path, conn: psycopg.AsyncConnection) -> None:
    defer = only("sh", "asyncq defer hello.greet").text.strip()
    assert asyncq(shop, "asyncq migrate") == "schema asyncq is up to date\n"
    asyncq(shop, defer)
    assert asyncq(shop, "asyncq worker hello --burst") == "hello, you\n"
    assert await count(conn, "asyncq.jobs") == 0


async def order(app: FastAPI, product: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        return await client.post("/orders", json={"product": product, "email": "ada@example.com"})


async def test_web_app_and_its_worker(shop: Path, conn: psycopg.AsyncConnection) -> None:
    app: FastAPI = importlib.import_module("web").app
    async with app.router.lifespan_context(app):
        accepted = await order(app, "tea")
        assert (accepted.status_code, accepted.json()) == (201, {"id": 1})
        assert (await order(app, "coffee")).status_code == 409  # its order and its job are rolled back
    assert await count(conn, "orders") == 1
    assert await count(conn, "asyncq.jobs where args = '{\"order_id\": 1}'") == 1
    assert await count(conn, "asyncq.jobs") == 1

    (line,) = (line for line in commands() if line.startswith("asyncq worker shop"))
    said = asyncq(shop, f"{line} --burst")
    assert said == "to ada@example.com: your tea is on its way (plain)\n"
    assert await count(conn, "orders where receipt_sent_at is not null") == 1
    assert await count(conn, "asyncq.jobs") == 0


async def test_worker_in_the_web_apps_lifespan(shop: Path, conn: psycopg.AsyncConnection) -> None:
    web = importlib.import_module("web")
    # The page changes one function of web.py, whose imports and those of shop.py are taken as made.
    namespace = {**vars(importlib.import_module("shop")), **vars(web)}
    await run(only("python", "background.start_soon"), namespace)
    app = FastAPI(lifespan=namespace["lifespan"])
    app.add_api_route("/orders", web.create_order, methods=["POST"], status_code=201)
    async with app.router.lifespan_context(app):
        assert (await order(app, "tea")).status_code == 201

        async def sent() -> bool:
            return await count(conn, "orders where receipt_sent_at is not null") == 1

        await eventually(sent, within=10)
    assert await count(conn, "asyncq.jobs") == 0


Hook = Callable[[Namespace], Awaitable[None]]


async def defer_one_of_each(namespace: Namespace) -> None:
    """Before the page runs a worker: work for every handler it has shown."""
    conn, charge = namespace["conn"], namespace["charge"]
    await namespace["remind"].defer(conn, 1)
    await namespace["render"].defer(conn, 3)
    for status in ("closed for the night", "too many requests", "order was withdrawn", "declined", "fine"):
        await charge.defer(conn, 1, status)
    await namespace["refund"].defer(conn, 1)
    await conn.execute("update orders set receipt_sent_at = null")
    await namespace["capture"].defer(conn, 1)
    await namespace["capture"].options(priority=-1).defer(conn, 1)  # as if it ran twice


async def look_at_their_ends(namespace: Namespace) -> None:
    assert namespace["code"] is ExitCode.STOPPED
    cursor = await namespace["conn"].execute(
        "select task, args->>'status', state, attempts, last_error, round(extract(epoch from run_at - now()))::int"
        " from asyncq.jobs where queue = 'payments' order by id"
    )
    snoozed, retried, cancelled, discarded = await cursor.fetchall()
    assert snoozed[1:5] == ("closed for the night", "available", 0, None)
    assert 8 * 3600 - 60 < snoozed[5] <= 8 * 3600
    assert retried[1:5] == ("too many requests", "available", 1, "the bank asked us to slow down")
    assert 0 < retried[5] <= 30
    assert cancelled[1:5] == ("order was withdrawn", "cancelled", 1, "nothing to charge")
    assert discarded[1:4] == ("declined", "discarded", 1)
    assert "CardDeclined" in discarded[4]
    # The scheduled reminders wait; the 1,000, and the one at the top of the page, are done.
    cursor = await namespace["conn"].execute(
        "select queue, priority, max_attempts, run_at > now() from asyncq.jobs where queue <> 'payments' order by id"
    )
    assert await cursor.fetchall() == [("emails", -5, 10, True), ("emails", 0, 10, True), ("bulk", 0, 3, False)]
    assert len(namespace["ids"]) == 1000


async def make_a_dead_letter(namespace: Namespace) -> None:
    bad = "select asyncq.defer('shop.remind', '{\"order\": 1}', 'emails', max_attempts => 1)"
    await namespace["conn"].execute(bad)
    assert await Worker([namespace["emails"]], namespace["dsn"], WorkerOptions(burst=True)).run() is ExitCode.STOPPED


async def look_at_the_replayed_one(namespace: Namespace) -> None:
    (replayed,) = namespace["replayed"]
    cursor = await namespace["conn"].execute("select state, attempts from asyncq.jobs where id = %s", (replayed,))
    assert await cursor.fetchone() == ("available", 0)


async def defer_one_for_later(namespace: Namespace) -> None:
    deferred = await namespace["send_receipt"].options(delay=timedelta(hours=1)).defer(namespace["conn"], 1)
    namespace["later"] = deferred.id


async def look_at_the_one_cancelled(namespace: Namespace) -> None:
    assert [job.id for job in namespace["found"]][:1] == namespace["hurried"][-1:] == [namespace["later"]]
    assert set(namespace["hurried"]) <= set(namespace["cancelled"])
    assert namespace["deleted"] == 0
    assert namespace["stats"].scheduled >= 1


HOOKS: dict[str, tuple[Hook, Hook]] = {
    "WorkerOptions(burst=True)": (defer_one_of_each, look_at_their_ends),
    "replayed = ": (make_a_dead_letter, look_at_the_replayed_one),
    "cancelled = ": (defer_one_for_later, look_at_the_one_cancelled),
}
"""What happens before and after the block that holds a text."""


async def nothing(namespace: Namespace) -> None:
    """Most blocks need nothing before them, and the next one tells whether they worked."""


def snippets() -> Iterator[Block]:
    for block in blocks("python"):
        if block.file is None and "sqlalchemy" not in block.text and "background.start_soon" not in block.text:
            yield block


async def test_snippets_in_the_order_of_the_page(
    shop: Path, dsn: str, conn: psycopg.AsyncConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    module: ModuleType = importlib.import_module("shop")
    pool: AsyncConnectionPool = module.pool
    await pool.open()
    try:
        # What the page has introduced before its snippets use it.
        namespace: Namespace = {**vars(module), "__name__": "readme", "conn": conn, "dsn": dsn}
        namespace |= {"Worker": Worker, "WorkerOptions": WorkerOptions}
        met: list[str] = []
        for block in snippets():
            met += (marks := [mark for mark in HOOKS if mark in block.text])
            before, after = HOOKS[marks[0]] if marks else (nothing, nothing)
            namespace["conn"] = conn  # one in autocommit; blocks may have called another one so
            await before(namespace)
            capsys.readouterr()
            await run(block, namespace)
            printed = capsys.readouterr().out
            for said in re.findall(r"print\(.*\)  # (.+)", block.text):
                assert said in printed
            await after(namespace)
        assert met == list(HOOKS)
    finally:
        await pool.close()


if importlib.util.find_spec("sqlalchemy"):

    async def test_sqlalchemys_session_takes_the_job_into_its_transaction(
        shop: Path, dsn: str, conn: psycopg.AsyncConnection
    ) -> None:
        asyncio_extension: Any = importlib.import_module("sqlalchemy.ext.asyncio")
        namespace: Namespace = {**vars(importlib.import_module("shop")), "__name__": "readme"}
        await run(only("python", "sqlalchemy"), namespace)
        engine = asyncio_extension.create_async_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
        async with asyncio_extension.AsyncSession(engine) as session:
            await namespace["place_order"](session, 1)
            await session.rollback()
            await namespace["place_order"](session, 2)
            assert await count(conn, "asyncq.jobs") == 0
            await session.commit()
        await engine.dispose()
        cursor = await conn.execute("select args->>'order_id' from asyncq.jobs")
        assert await cursor.fetchall() == [("2",)]


async def test_jobs_from_sql(shop: Path, conn: psycopg.AsyncConnection) -> None:
    await execute(conn, only("sql", "select asyncq.defer"))
    assert await count(conn, "asyncq.jobs where queue = 'emails' and run_at <= now()") == 1
    assert await count(conn, "asyncq.jobs where queue = 'emails' and run_at > now() + interval '23 hours'") == 1
    watched = await execute(conn, only("sql", "count(*) filter"))
    assert [row[:4] for row in watched] == [("emails", 1, 0, 0)]
    assert {len(row) for row in await execute(conn, only("sql", "n_dead_tup"))} == {3}


async def test_jobs_from_the_shell(shop: Path, conn: psycopg.AsyncConnection) -> None:
    for line in only("sh", "asyncq defer shop").text.splitlines():
        asyncq(shop, line)
    cursor = await conn.execute("select queue, priority, args, run_at > now() from asyncq.jobs order by id")
    assert await cursor.fetchall() == [("emails", 0, {"order_id": 7}, False), ("emails", 5, {"order_id": 7}, True)]


async def test_dead_letters_from_the_shell(shop: Path, conn: psycopg.AsyncConnection) -> None:
    await conn.execute(
        "insert into asyncq.jobs (id, queue, task, state, finished_at, last_error) overriding system value"
        " select id, 'emails', 't', 'discarded', now(), 'ValueError: no such user' from unnest('{16,17,42}'::int[]) id"
    )
    listed, some, rest = only("sh", "asyncq replay").text.splitlines()
    assert asyncq(shop, listed).count("ValueError: no such user") == 6  # in the line, and in full below it
    assert asyncq(shop, some) == "17\n42\n"
    assert asyncq(shop, rest) == "16\n"


async def test_looking_and_stepping_in_from_the_shell(shop: Path, conn: psycopg.AsyncConnection) -> None:
    await conn.execute(
        "insert into asyncq.jobs (id, queue, task, args, run_at, created_at) overriding system value"
        " values (17, 'emails', 't', '{\"order_id\": 7}', now() + interval '1 day', now() - interval '1 day')"
    )
    status, jobs, show, run_now, cancel, purge = only("sh", "asyncq status").text.splitlines()
    assert asyncq(shop, status).splitlines()[-1].split() == ["emails", "0", "-", "1", "0", "0", "0"]
    assert asyncq(shop, jobs).splitlines()[-1].split()[0] == "17"
    assert '{"order_id": 7}' in asyncq(shop, show)
    assert asyncq(shop, run_now) == "17\n"
    assert await count(conn, "asyncq.jobs where run_at <= now()") == 1
    assert asyncq(shop, cancel) == "17\n"
    assert asyncq(shop, purge) == "0\n"
    assert await count(conn, "asyncq.jobs where state = 'cancelled'") == 1


async def test_several_queues(shop: Path) -> None:
    for line in only("sh", "--strict").text.splitlines():
        asyncq(shop, f"{line} --burst")


async def test_a_deploy_can_ask_whether_the_schema_is_there(empty_dsn: str, tmp_path: Path) -> None:
    def check() -> int:
        arguments = [sys.executable, "-m", "asyncq", "migrate", "--check", "--dsn", empty_dsn]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False).returncode

    assert check() == ExitCode.SCHEMA == int(re.findall(r"exits with (\d) while steps are missing", README)[0])
    await migrate(empty_dsn)
    assert check() == 0


# --- Permissions ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def roles(shop: Path, dsn: str, conn: psycopg.AsyncConnection) -> AsyncGenerator[Callable[[str], str]]:
    """The page's roles; gives a function from a role to a DSN with that role's rights."""
    await execute(conn, only("sql", "create role"))
    yield lambda role: with_options(dsn, options=f"-c role={role}")
    for role in ("shop_web", "shop_worker", "shop_observer"):
        await conn.execute(f"drop owned by {role}")
        await conn.execute(f"drop role {role}")


@pytest.fixture
def failing() -> Queue:
    queue = Queue("emails", retry=RetryPolicy(base=timedelta(microseconds=1)))

    @queue.task(name="shop.fails", max_attempts=2)
    async def fails() -> None:
        raise ValueError

    @queue.task(name="shop.works")
    async def works(number: int) -> None: ...

    return queue


REFUSED = psycopg.errors.InsufficientPrivilege


async def refuses(connection: psycopg.AsyncConnection, statement: LiteralString) -> None:
    with pytest.raises(REFUSED):
        await connection.execute(statement)


async def test_the_web_apps_role_can_put_jobs_in_and_nothing_else(
    roles: Callable[[str], str], failing: Queue, conn: psycopg.AsyncConnection
) -> None:
    works = failing.tasks["shop.works"]
    async with await psycopg.AsyncConnection.connect(roles("shop_web"), autocommit=True) as web:
        await works.defer(web, 1)
        await works.options(delay=timedelta(hours=1)).defer(web, 1)
        assert len(await works.defer_many(web, (works.args(number) for number in range(2500)))) == 2500
        await execute(web, only("sql", "select asyncq.defer"))
        await refuses(web, "select args from asyncq.jobs")
        await refuses(web, "delete from asyncq.jobs")
        await refuses(web, "update asyncq.jobs set priority = 1")
    assert await count(conn, "asyncq.jobs") == 2504


async def test_the_workers_role_can_do_all_that_a_worker_does(
    roles: Callable[[str], str], failing: Queue, conn: psycopg.AsyncConnection
) -> None:
    dsn = roles("shop_worker")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as worker:
        await failing.tasks["shop.works"].defer(worker, 1)
        await failing.tasks["shop.fails"].defer(worker)
        assert await Worker([failing], dsn, WorkerOptions(burst=True)).run() is ExitCode.STOPPED
        if await count(conn, "asyncq.jobs where state = 'available'"):  # the retry was not yet due
            assert await Worker([failing], dsn, WorkerOptions(burst=True)).run() is ExitCode.STOPPED
        (dead,) = await failing.discarded(worker)
        assert await failing.replay(worker) == [dead.id]
        await refuses(worker, "drop table asyncq.jobs")


async def test_the_observers_role_sees_no_personal_data(
    roles: Callable[[str], str], shop: Path, failing: Queue, conn: psycopg.AsyncConnection
) -> None:
    await failing.tasks["shop.works"].defer(conn, 1)
    dsn = roles("shop_observer")
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as observer:
        assert [row[:4] for row in await execute(observer, only("sql", "count(*) filter"))] == [("emails", 1, 0, 0)]
        await execute(observer, only("sql", "n_dead_tup"))
        await refuses(observer, "select args from asyncq.jobs")
        await refuses(observer, "select last_error from asyncq.jobs")
        await refuses(observer, "delete from asyncq.jobs")
    to_this = f"--dsn {shlex.quote(dsn)}"
    assert asyncq(shop, f"asyncq status {to_this}").splitlines()[-1].split()[:2] == ["emails", "1"]
    for command in ("jobs emails", "jobs emails --state running --json", "show 1", "show 1 --json"):
        seen = asyncq(shop, f"asyncq {command} {to_this}")
        assert "number" not in seen, "an argument"
        assert ("shop.works" in seen) == ("running" not in command)
        assert '"args"' not in seen
    assert asyncq(shop, f"asyncq migrate --check --dsn {shlex.quote(dsn)}") == "schema asyncq is up to date\n"


async def test_the_owner_needs_the_right_to_create_the_schema_only(empty_dsn: str, postgres: Postgres) -> None:
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as admin:
        await admin.execute("create role shop_owner")
        try:
            owner = with_options(empty_dsn, options="-c role=shop_owner")
            with pytest.raises(REFUSED):
                await migrate(owner)
            await admin.execute(cast("LiteralString", f"grant create on database {admin.info.dbname} to shop_owner"))
            assert await migrate(owner)
        finally:
            await admin.execute("drop owned by shop_owner cascade")
            await admin.execute("drop role shop_owner")


# --- Command lines, numbers and links ---------------------------------------------------------------------------------


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.text.splitlines()]
    return [part.strip() for line in lines for part in line.split("&&") if part.strip().startswith("asyncq ")]


def mentioned() -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`(asyncq [^`]+)`", prose)


class ParsedError(Exception):
    """The command line was accepted."""


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], bool]:
    """Say whether asyncq accepts a command line, without running it."""
    original = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *given: Any) -> NoReturn:
        original(self, *given)
        raise ParsedError

    def accepted(line: str) -> bool:
        try:
            cli.main(shlex.split(line)[1:])
        except ParsedError:
            return True
        except SystemExit as end:
            return end.code == 0  # --help
        raise AssertionError("main() does not parse its arguments with parse_args()")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    return accepted


def test_each_command_line_is_one_that_asyncq_takes(parse: Callable[[str], bool]) -> None:
    assert len(commands()) > 12
    assert [line for line in commands() if not parse(line)] == []
    assert not parse("asyncq migrate --chekc")  # or the test would be one that cannot fail


def test_each_command_that_is_mentioned_exists(parse: Callable[[str], bool]) -> None:
    assert len(mentioned()) > 5
    # In the prose a command may stand for itself, without its arguments.
    assert [line for line in mentioned() if not parse(line) and not parse(f"{line} --help")] == []


def test_two_lines_do_all_the_set_up() -> None:
    lines = [line for block in blocks("sh") for line in block.text.splitlines() if "pip install" in line]
    assert lines == [
        "python -m pip install -e '.[cli,embedded]' && asyncq demo",
        "python -m pip install -e '.[dev]' && python -m pytest",
    ]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"cli", "embedded", "dev"} <= extras.keys()


def table(heading: str) -> dict[str, list[str]]:
    """A table's rows by their first cell."""
    (text,) = re.findall(rf"^\| {re.escape(heading)} \|.*\n((?:\|.*\n)+)", README, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[1:]]
    return {row[0]: row[1:] for row in rows}


def test_exit_codes() -> None:
    assert {int(code) for code in table("exit code")} == {*(code.value for code in ExitCode), cli.USAGE}


def test_defaults() -> None:
    queue, options = Queue("q"), table("option")

    @queue.task(name="t")
    async def task() -> None: ...

    assert options["`max_attempts`"][1] == str(queue.max_attempts)
    assert options["`priority`"][1] == str(task.settings.priority)
    assert options["`lease`"][1] == f"{queue.lease.total_seconds():g} s"
    assert options["`weight`"][1] == str(queue.weight)
    assert options["`retention`"][1] == f"{queue.retention.days} days"
    assert options["`timeout`"][1] == str(task.settings.timeout).lower()
    assert [queue.retry.seconds(attempts, OSError(), chance=0) for attempts in (1, 2, 3, 99)] == [2, 4, 8, 3600]
    assert "2, 4, 8 … seconds, at most 1 hour" in options["`retry`"][1]
    assert WorkerOptions().grace == timedelta(seconds=30)
    assert "terminationGracePeriodSeconds: 45" in README


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.removeprefix("#") in anchors if target.startswith("#") else (ROOT / target).exists(), target


def test_the_page_about_the_tests_names_files_that_are_there() -> None:
    tests = ROOT / "tests"
    page = (tests / "README.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page))
    assert len(named) > 20
    assert [name for name in named if not (tests / name).exists() and not any(tests.glob(f"*/{name}"))] == []
