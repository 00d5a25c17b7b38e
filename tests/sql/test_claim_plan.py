"""The claim's plan: finding ten jobs takes a handful of pages, however much waits, and whatever the statistics say."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from psycopg import sql

from asyncq.db.arrays import numbers, texts
from asyncq.db.connection import address_of, connect, numbered
from asyncq.db.statements import load, sql_folder
from tests.servers import majors

Plan = dict[str, Any]
Connection = psycopg.AsyncConnection[Any]

LOAD = """
    insert into asyncq.jobs (queue, task, priority, run_at)
    select 'queue ' || n % 3, 'task', n % 2, case when n % 2 = 1 then now() + interval '1 day' - n * interval '1 ms'
                                                  else now() - n * interval '1 ms' end
    from generate_series(1, 600000) n
"""
"""300,000 due jobs in three queues, and before them, by priority, 300,000 for tomorrow."""


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def buffers(plan: Plan) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def prepare(conn: psycopg.AsyncConnection[Any], name: str) -> list[str]:
    """Prepare a statement as `it`, and give the names of its parameters."""
    text, names = numbered(load(name, "asyncq"))
    kinds = {"free": "integer", "token": "bigint", "batch": "integer"}
    await conn.execute("deallocate all")
    await conn.execute(f"prepare it ({', '.join(kinds.get(each, 'text') for each in names)}) as {text}".encode())
    return list(names)


async def explained(conn: psycopg.AsyncConnection[Any], name: str, **values: object) -> Plan:
    """Run a statement as a worker does, prepared and with the worker's settings, and give its plan."""
    names = await prepare(conn, name)
    statement = sql.SQL("explain (analyze, buffers, format json) execute it ({})").format(
        sql.SQL(", ").join(sql.Literal(values[each]) for each in names)
    )
    row = await (await conn.execute(statement)).fetchone()
    assert row is not None
    return row[0][0]["Plan"]


def asked(*queues: str, slots: int, lanes: Sequence[int] = (0, 1), **values: object) -> dict[str, object]:
    """Parameters of a claim that reads these lanes of each queue from their start."""
    each = [(place, priority) for place in range(1, len(queues) + 1) for priority in sorted(lanes, reverse=True)]
    return {
        "ids": "{}",
        "tokens": "{}",
        "queues": texts(queues),
        "slots": numbers([slots for _ in queues]),
        "asked_later": numbers([False for _ in queues]),
        "lane_queues": numbers([place for place, _ in each]),
        "lane_priorities": numbers([priority for _, priority in each]),
        "lane_times": texts(["-infinity" for _ in each]),
        "lane_ids": numbers([0 for _ in each]),
        "gap_queues": "{}",
        "gap_tops": "{}",
        "gap_bottoms": "{}",
        "free": slots,
        "tasks": '{"task","another"}',
        "here": "{1}",
        "worker": "worker",
        "token": 1,
        **values,
    }


@pytest.fixture
async def conn(dsn: str) -> AsyncGenerator[Connection]:
    """A worker's connection to a table of which statistics come only when the test says so."""
    async with (await connect(address_of(dsn, "claims"))).connection as conn:
        await conn.execute("alter table asyncq.jobs set (autovacuum_enabled = off)")
        yield conn


async def keep_a_snapshot(tx_conn: psycopg.AsyncConnection) -> None:
    """Keep all rows that are there or come from being vacuumed."""
    await tx_conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
    await tx_conn.execute("select count(*) from asyncq.jobs")


def checked(plan: Plan, where: str) -> list[Plan]:
    """No table is scanned and nothing but a batch is sorted: gives all nodes."""
    seen = list(nodes(plan))
    assert [each for each in seen if each["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")] == [], where
    for sort in (each for each in seen if each["Node Type"] in ("Sort", "Incremental Sort")):
        assert sort["Actual Rows"] <= 10, where
    return seen


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_finding_ten_jobs_among_hundreds_of_thousands_takes_a_few_pages(conn: Connection) -> None:
    await conn.execute(LOAD)
    queues = ["queue 0", "queue 1", "queue 2"]
    for statistics in ("none", "fresh"):
        if statistics == "fresh":
            await conn.execute("vacuum (analyze) asyncq.jobs")
        for served in (queues[:1], queues):
            plan = await explained(conn, "jobs/claim", **asked(*served, slots=10))
            where = f"statistics: {statistics}, queues: {len(served)}"
            seen = checked(plan, where)
            scans = [each for each in seen if "Index" in each["Node Type"]]
            assert {each["Index Name"] for each in scans if each["Actual Loops"]} == {"jobs_claim"}, where
            [candidate] = [each for each in seen if each.get("Subplan Name") == "CTE candidate"]
            assert candidate["Actual Rows"] == 10, where
            assert buffers(candidate) < 50, f"{where}: finding takes {buffers(candidate)} buffers"
            assert buffers(plan) < 200, f"{where}: all takes {buffers(plan)} buffers"
            # A look at gaps, and at what falls due next.
            look = asked(
                *served, slots=0, lanes=(1,), asked_later=numbers([True for _ in served]),
                gap_queues=numbers(range(1, len(served) + 1)), gap_tops=numbers([1 for _ in served]),
                gap_bottoms=numbers([-32_769 for _ in served]),
            )  # fmt: skip
            plan = await explained(conn, "jobs/look", **look)
            checked(plan, where)
            assert buffers(plan) < 30 * len(served), f"{where}: looking takes {buffers(plan)} buffers"


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_writing_ten_outcomes_takes_a_few_pages_also_of_those_that_cannot_be_written(conn: Connection) -> None:
    await conn.execute(LOAD)
    await conn.execute("""
        update asyncq.jobs set state = 'running', locked_by = 'w', lease_token = id, leased_until = now() + '1 hour',
            attempted_at = now() where id <= 30000
    """)
    for statistics in ("none", "fresh"):
        if statistics == "fresh":
            await conn.execute("vacuum (analyze) asyncq.jobs")
        held = [*range(1, 10), 700_000]
        values = {"ids": numbers(held), "tokens": numbers(held)}
        await conn.execute("begin")
        for name, given in {
            "jobs/complete": values,
            "jobs/heartbeat": values,
            "jobs/claim": asked("none", slots=0) | values,
        }.items():
            plan = await explained(conn, name, **given)
            checked(plan, f"{name}, statistics: {statistics}")
            assert buffers(plan) < 250, f"{name}, statistics: {statistics}: {buffers(plan)} buffers"
            await conn.execute("rollback")
            await conn.execute("begin")
        await conn.execute("rollback")


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_what_an_old_snapshot_keeps_is_not_walked_by_claims_that_read_on(
    conn: Connection, tx_conn: psycopg.AsyncConnection
) -> None:
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 'task' from generate_series(1, 30000)")
    await keep_a_snapshot(tx_conn)
    await conn.execute("delete from asyncq.jobs")
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 'task' from generate_series(1, 10)")
    row = await (await conn.execute("select min(run_at)::text, min(id) - 1 from asyncq.jobs")).fetchone()
    assert row is not None
    walked: dict[str, int] = {}
    for name, position in {"from the start": ("-infinity", 0), "reading on": row}.items():
        await conn.execute("begin")
        given = asked("q", slots=10, lanes=(0,), lane_times=texts([position[0]]), lane_ids=numbers([position[1]]))
        plan = await explained(conn, "jobs/claim", **given)
        [candidate] = [each for each in nodes(plan) if each.get("Subplan Name") == "CTE candidate"]
        assert candidate["Actual Rows"] == 10
        walked[name] = buffers(candidate)
        await conn.execute("rollback")
    assert walked["reading on"] < 50, walked
    assert walked["from the start"] > 500, walked


@majors(12, 18)
async def test_looking_for_unknown_tasks_reads_only_the_heads(conn: Connection) -> None:
    await conn.execute("""
        insert into asyncq.jobs (queue, task, priority, run_at)
        select queue, 'task', n % priorities, now() - waited * interval '1 hour'
        from (values ('few', 3, 1), ('many', 20, 1), ('later', 20, -1)) as given (queue, priorities, waited)
        cross join generate_series(1, 40000) n
    """)
    for statistics in ("none", "fresh"):
        if statistics == "fresh":
            await conn.execute("vacuum (analyze) asyncq.jobs")
        for queue, read in (("few", 3_000), ("many", 10_000), ("later", 0)):
            given = {"queues": texts([queue]), "tasks": '{"another"}', "waited": 60}
            plan = await explained(conn, "jobs/unknown", **given)
            where = f"statistics: {statistics}, queue: {queue}"
            scans = [each for each in nodes(plan) if each.get("Relation Name") == "jobs"]
            assert {each.get("Index Name") for each in scans} == {"jobs_claim"}, where
            [waiting] = [each for each in scans if "run_at" in each["Index Cond"]]
            assert waiting["Actual Rows"] * waiting["Actual Loops"] == read, where
            assert buffers(plan) < 500 + read, f"{where}: {buffers(plan)} buffers"


STATEMENTS = sorted(f"jobs/{file.name.removesuffix('.sql')}" for file in (sql_folder() / "queries" / "jobs").iterdir())


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_statistics_from_a_moment_without_jobs_mislead_no_statement(
    conn: Connection, tx_conn: psycopg.AsyncConnection
) -> None:
    # With the rows kept by an old snapshot, the table stays long though nothing in it is alive: a walk over all of an
    # index is then estimated at one page, like a look for one row.
    await keep_a_snapshot(tx_conn)
    await conn.execute("insert into asyncq.jobs (queue, task) select 'q', 'task' from generate_series(1, 30000)")
    await conn.execute("""
        update asyncq.jobs set state = 'running', locked_by = 'w', lease_token = id, leased_until = now() + '1 hour',
            attempted_at = now()
    """)
    await conn.execute("delete from asyncq.jobs")
    await conn.execute("vacuum (analyze) asyncq.jobs")
    row = await (
        await conn.execute("select reltuples, relpages > 100 from pg_class where oid = 'asyncq.jobs'::regclass")
    ).fetchone()
    assert row == (0, True)

    for name in STATEMENTS:
        nulls = ", ".join("null" for _ in await prepare(conn, name))
        plan = await (await conn.execute(f"explain (format json) execute it ({nulls})".encode())).fetchone()
        assert plan is not None
        scans = [
            each
            for each in nodes(plan[0][0]["Plan"])
            if "Scan" in each["Node Type"] and each.get("Relation Name") == "jobs"
        ]
        assert scans or "defer" in name
        # A release walks over what is running: it knows nothing but tokens.
        aimless = [each for each in scans if each["Node Type"] != "Tid Scan" and "Index Cond" not in each]
        assert [each["Index Name"] for each in aimless] == (["jobs_running"] if name == "jobs/release" else []), name
