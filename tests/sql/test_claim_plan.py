"""The claim's plan: finding ten jobs takes a handful of pages, however much waits, and whatever the statistics say."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from asyncq.db.connection import address_of, connect
from asyncq.db.statements import load
from tests.servers import majors

Plan = dict[str, Any]

PARAMS = {
    "queues": "text[]",
    "slots": "integer[]",
    "free": "integer",
    "tasks": "text[]",
    "here": "bigint[]",
    "worker": "text",
    "token": "bigint",
}
"""The claim's parameters, in the order of first use, with the types that psycopg sends."""

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


async def explained(conn: psycopg.AsyncConnection[Any], **values: Any) -> Plan:
    """Run the claim as a worker does, prepared and with the worker's settings, and give its plan."""
    text = load("jobs/claim", "asyncq")
    assert list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text))) == [
        "queues",
        "slots",
        "tasks",
        "here",
        "free",
        "worker",
        "token",
    ]
    for number, name in enumerate(PARAMS, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    await conn.execute("deallocate all")
    kinds = ", ".join(PARAMS.values())
    await conn.execute(f"prepare claim ({kinds}) as {text}".encode())
    statement = sql.SQL("explain (analyze, buffers, format json) execute claim ({})").format(
        sql.SQL(", ").join(sql.Literal(values[name]) + sql.SQL("::" + kind) for name, kind in PARAMS.items())  # type: ignore[arg-type]
    )
    row = await (await conn.execute(statement)).fetchone()
    assert row is not None
    return row[0][0]["Plan"]


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_finding_ten_jobs_among_hundreds_of_thousands_takes_a_few_pages(dsn: str) -> None:
    conn = await connect(address_of(dsn, "claims"))
    # Autovacuum would decide when the statistics come.
    await conn.execute("alter table asyncq.jobs set (autovacuum_enabled = off)")
    await conn.execute(LOAD)
    queues = ["queue 0", "queue 1", "queue 2"]
    for statistics in ("none", "fresh"):
        if statistics == "fresh":
            await conn.execute("vacuum (analyze) asyncq.jobs")
        for served in (queues[:1], queues):
            plan = await explained(
                conn, queues=served, slots=[10] * len(served), free=10, tasks=["task", "another"], here=[1],
                worker="worker", token=1,
            )  # fmt: skip
            seen = list(nodes(plan))
            where = f"statistics: {statistics}, queues: {len(served)}"
            assert plan["Actual Rows"] == 10, where
            assert [node for node in seen if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")] == [], where
            scans = [node for node in seen if "Index" in node["Node Type"]]
            assert {node["Index Name"] for node in scans if node["Actual Loops"]} == {"jobs_claim"}, where
            for sort in (node for node in seen if node["Node Type"] in ("Sort", "Incremental Sort")):
                assert sort["Actual Rows"] <= 10, where
            [candidate] = [node for node in seen if node.get("Subplan Name") == "CTE candidate"]
            assert candidate["Actual Rows"] == 10, where
            assert buffers(candidate) < 50, f"{where}: finding takes {buffers(candidate)} buffers"
            assert buffers(plan) < 200, f"{where}: all takes {buffers(plan)} buffers"
    await conn.close()
