"""`asyncq discarded` and `asyncq replay`."""

from collections.abc import Generator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.cli.run import run
from tests.conftest import chosen
from tests.servers import Servers


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


def dead(db: psycopg.Connection[Any], **columns: Any) -> int:
    given: dict[str, Any] = {
        "queue": "q",
        "task": "t",
        "args": "{}",
        "state": "discarded",
        "attempts": 3,
        "last_error": "ValueError: x",
        "finished_at": "2024-05-06 07:08:09+00",
        "run_at": "2024-01-01 00:00+00",
    }
    row = db.execute(
        """
        insert into asyncq.jobs (queue, task, args, state, attempts, last_error, finished_at, run_at) values
        (%(queue)s, %(task)s, %(args)s, %(state)s, %(attempts)s, %(last_error)s, %(finished_at)s, %(run_at)s)
        returning id
        """,
        {**given, **columns},
    ).fetchone()
    assert row is not None
    return row[0]


def states(db: psycopg.Connection[Any]) -> dict[int, str]:
    return dict(db.execute("select id, state from asyncq.jobs").fetchall())


@pytest.fixture(scope="module")
def shared_dsn(request: pytest.FixtureRequest, servers: Servers) -> Generator[str]:
    """A migrated database for the tests that try what is refused: nothing gets into it."""
    postgres = servers.shared(chosen(request.config))
    dsn = postgres.create_database()
    yield dsn
    postgres.drop_database(dsn)


def test_lists_a_line_a_job_the_latest_first(dsn: str, db: psycopg.Connection[Any]) -> None:
    old = dead(
        db, args='{"user_id": 7}', task="app.send", last_error="Traceback ...\n  File x\nValueError: no such user"
    )
    new = dead(db, finished_at="2024-06-07 00:00+00")
    dead(db, queue="another")
    result = run("discarded", "q", dsn=dsn)
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.lines] == [str(new), str(old)]
    assert result.lines[1] == (
        f'{old}  2024-05-06 07:08:09+00:00  app.send({{"user_id": 7}})  attempts 3  ValueError: no such user'
    )


def test_nothing_discarded_says_so(shared_dsn: str) -> None:
    assert run("discarded", "q", dsn=shared_dsn).lines == ["no discarded jobs in queue q"]


def test_shows_at_most_the_limit(dsn: str, db: psycopg.Connection[Any]) -> None:
    for _ in range(25):
        dead(db)
    assert len(run("discarded", "q", dsn=dsn).lines) == 20
    assert len(run("discarded", "q", "--limit", "3", dsn=dsn).lines) == 3
    assert len(run("discarded", "q", "--limit", "100000", dsn=dsn).lines) == 25


@pytest.mark.parametrize("limit", ["0", "-1", "100001", "x", "1.5"])
def test_a_wrong_limit_is_a_wrong_use(shared_dsn: str, limit: str) -> None:
    result = run("discarded", "q", f"--limit={limit}", dsn=shared_dsn)
    assert result.code == 2
    assert "limit" in result.err


def test_shows_whole_errors_when_asked(dsn: str, db: psycopg.Connection[Any]) -> None:
    dead(db, last_error="Traceback ...\n  File x\nValueError: no such user")
    result = run("discarded", "q", "--errors", dsn=dsn)
    assert result.lines[1:] == ["    Traceback ...", "      File x", "    ValueError: no such user"]


HOSTILE = "\x1b]0;pwn\x07 \x1b[2J\x9b31m\r\nfake line\u2028\u202e \x08\x7f"


def test_what_jobs_hold_cannot_steer_the_terminal(dsn: str, db: psycopg.Connection[Any]) -> None:
    visible = "<img src=x onerror=alert(1)> ');alert(1)// %2f"
    job_id = dead(db, task=visible, args=Jsonb({"a": HOSTILE, HOSTILE: visible}), last_error=HOSTILE)
    for arguments in ((), ("--errors",)):
        result = run("discarded", "q", *arguments, dsn=dsn)
        assert result.code == 0
        assert visible in result.out
        steering = {each for each in result.out if ord(each) < 32 or 127 <= ord(each) < 160 or each in "\u2028\u202e"}
        assert steering == {"\n"}
        # Nothing that a job holds begins a line.
        assert all(line.startswith((f"{job_id}  ", "    ")) for line in result.out.split("\n")[:-1])


def test_a_queues_odd_name_cannot_steer_it_either(shared_dsn: str) -> None:
    result = run("discarded", "\u202eq", dsn=shared_dsn)
    assert result.code == 0
    assert "\u202e" not in result.out
    for command in ("discarded", "replay"):
        refused = run(command, "\x1b[31m", dsn=shared_dsn)
        assert refused.code == 2
        assert "\x1b" not in refused.err


@pytest.mark.parametrize("queue", ["", "x" * 129, "a\nb", "\udcff"], ids=ascii)
@pytest.mark.parametrize("command", ["discarded", "replay"])
def test_a_queue_that_cannot_be_is_a_wrong_use(shared_dsn: str, command: str, queue: str) -> None:
    result = run(command, queue, dsn=shared_dsn)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1


def test_times_that_python_cannot_hold_are_listed(dsn: str, db: psycopg.Connection[Any]) -> None:
    for far in ("infinity", "-infinity", "200000-01-01 00:00+00", "4713-01-01 00:00:00+00 BC"):
        dead(db, finished_at=far, run_at=far)
    assert len(run("discarded", "q", dsn=dsn).lines) == 4


def test_replay_puts_all_discarded_jobs_back_and_prints_their_ids(dsn: str, db: psycopg.Connection[Any]) -> None:
    wanted = [dead(db), dead(db)]
    others = {dead(db, queue="another"): "discarded", dead(db, state="cancelled"): "cancelled"}
    result = run("replay", "q", dsn=dsn)
    assert (result.code, result.lines, result.err) == (0, [str(each) for each in wanted], "")
    assert states(db) == {**dict.fromkeys(wanted, "available"), **others}
    assert run("replay", "q", dsn=dsn).lines == ["nothing to replay in queue q"]


def test_replay_of_named_jobs(dsn: str, db: psycopg.Connection[Any]) -> None:
    first, second, cancelled = dead(db), dead(db), dead(db, state="cancelled")
    foreign = dead(db, queue="another")
    arguments = [str(each) for each in (cancelled, second, second, foreign, 10**9)]
    assert run("replay", "q", *arguments, dsn=dsn).lines == [str(second), str(cancelled)]
    assert states(db) == {first: "discarded", second: "available", cancelled: "available", foreign: "discarded"}


@pytest.mark.parametrize("wrong", ["x", "0", "-1", "1.5", str(2**63), "9" * 5_000], ids=lambda wrong: wrong[:20])
def test_replay_refuses_what_is_no_id(dsn: str, db: psycopg.Connection[Any], wrong: str) -> None:
    job_id = dead(db)
    result = run("replay", "q", str(job_id), wrong, dsn=dsn)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert states(db) == {job_id: "discarded"}
