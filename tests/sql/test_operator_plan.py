"""The plans of an operator's statements, on a connection without a worker's settings: nothing scans the table."""

from typing import Any

import psycopg
import pytest

from asyncq.db.statements import load
from tests.servers import majors
from tests.sql.test_claim_plan import Plan, buffers, nodes

LOAD = """
    insert into asyncq.jobs (queue, task, priority, run_at, args)
    select 'queue ' || n % 3, 'task', n % 2, now() + (n % 1000 - 500) * interval '1 minute', '{"user_id": 1}'
    from generate_series(1, 60000) n;
    insert into asyncq.jobs (queue, task, state, finished_at, last_error)
    select 'queue ' || n % 3, 'task', case n % 4 when 0 then 'cancelled' else 'discarded' end,
        now() - n % 1000 * interval '1 minute', repeat('x', 200)
    from generate_series(1, 60000) n;
"""


async def explained(conn: psycopg.AsyncConnection[Any], name: str, **values: object) -> Plan:
    statement = b"explain (analyze, buffers, format json) " + load(name, "asyncq").encode()
    row = await (await conn.execute(statement, values)).fetchone()
    assert row is not None
    return row[0][0]["Plan"]


@pytest.mark.timeout(120)
@majors(12, 18)
async def test_counts_and_pages_read_no_further_than_their_limits(conn: psycopg.AsyncConnection) -> None:
    await conn.execute("alter table asyncq.jobs set (autovacuum_enabled = off)")
    await conn.execute(LOAD)
    page = {"queue": "queue 1", "before": 2**63 - 1, "limit": 100, "task": None, "age": None}
    ids = "{" + ",".join(map(str, range(1, 200, 2))) + "}"
    asked: dict[str, tuple[str, dict[str, object], int]] = {
        "counts of all": ("jobs/stats", {"queues": None, "most": 1_000}, 12_000),
        "counts of one": ("jobs/stats", {"queues": '{"queue 1"}', "most": 1_000}, 4_000),
        "page": ("jobs/page", {**page, "state": None, "running": False, "args": None}, 1_000),
        "page of the running": ("jobs/page", {**page, "state": "running", "running": True, "args": None}, 1_000),
        "outlines": ("jobs/outlines", {**page, "state": None, "running": False}, 1_000),
        "show": ("jobs/show", {"ids": ids}, 500),
        "purge": ("jobs/purge", {"queue": "queue 1", "state": None, "age": 0.0, "batch": 10}, 200),
    }
    for statistics in ("none", "fresh", "vacuumed"):
        if statistics != "none":
            await conn.execute("analyze asyncq.jobs" if statistics == "fresh" else "vacuum (analyze) asyncq.jobs")
        for what, (name, values, most) in asked.items():
            where = f"{what}, statistics: {statistics}"
            async with conn.transaction(force_rollback=True):
                plan = await explained(conn, name, **values)
            scans = [
                each for each in nodes(plan) if each.get("Relation Name") == "jobs" and "Scan" in each["Node Type"]
            ]
            kinds = {each["Node Type"] for each in scans}
            assert kinds <= {"Index Scan", "Index Only Scan", "Tid Scan"}, where
            assert buffers(plan) < most, f"{where}: {buffers(plan)} buffers"
        for name in ("jobs/run_now", "jobs/cancel"):
            async with conn.transaction(force_rollback=True):
                plan = await explained(conn, name, queue="queue 1", ids=ids, reason="x")
            used = {each.get("Index Name") for each in nodes(plan) if "Index" in each["Node Type"]}
            assert used == {"jobs_pkey"}, f"{name}, statistics: {statistics}"
