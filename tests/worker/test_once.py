"""What was committed runs, once; what was rolled back never does."""

import random
import time
from collections import Counter

import psycopg
import pytest

from tests.conftest import StartWorker
from tests.eventually import eventually
from tests.truth import TruthLog
from tests.worker import app


async def emptied(conn: psycopg.AsyncConnection) -> bool:
    cursor = await conn.execute("select count(*) from asyncq.jobs where state in ('available', 'running')")
    return await cursor.fetchone() == (0,)


async def test_exactly_the_committed_jobs_run_once_each(
    dsn: str, conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    """1,000 jobs in transactions of which 300 roll back, put in while 8 worker processes run."""
    workers = [start_worker("tests.worker.app", "--queue", "work") for _ in range(8)]
    for worker in workers:
        await worker.wait_ready(40)
    rolled_back = set(random.Random(1).sample(range(1000), 300))
    async with await psycopg.AsyncConnection.connect(dsn) as producer:
        for number in range(1000):
            await app.quick.defer(producer, number)
            if number in rolled_back:
                await producer.rollback()
            else:
                await producer.commit()
    await eventually(lambda: emptied(conn), 30, describe="all jobs are done")
    ran = Counter(int(entry.note or "") for entry in await truth.rows(event="start"))
    assert ran == dict.fromkeys(set(range(1000)) - rolled_back, 1)
    for worker in workers:
        worker.terminate()
    assert [await worker.wait(20) for worker in workers] == [0] * 8


@pytest.mark.once
async def test_a_burst_of_mails_is_cleared_though_a_worker_dies(
    conn: psycopg.AsyncConnection, truth: TruthLog, start_worker: StartWorker
) -> None:
    """20,000 mails of 20 ms land at once on 5 workers; 2 % fail once, one is poison, one worker is killed."""
    workers = [start_worker("tests.worker.app", "--queue", "patient", "--queue", "work") for _ in range(5)]
    for worker in workers:
        await worker.wait_ready(40)
    began = time.monotonic()
    ids = await app.mail.defer_many(conn, (app.mail.args(number) for number in range(20_000)))
    assert ids == sorted(set(ids))
    assert len(ids) == 20_000

    async def a_third_is_sent() -> bool:
        cursor = await conn.execute("select count(*) > 6000 from truth where event = 'sent'")
        return await cursor.fetchone() == (True,)

    await eventually(a_third_is_sent, 30, describe="a third of the mails is sent")
    workers[0].kill()

    async def its_backends_are_gone() -> bool:
        # A claim under way is carried out by the server, whoever asked for it.
        cursor = await conn.execute(
            "select count(*) from pg_stat_activity where application_name like %s", (f"asyncq %:{workers[0].pid}:%",)
        )
        return await cursor.fetchone() == (0,)

    await eventually(its_backends_are_gone, describe="the killed worker's backends are gone")
    cursor = await conn.execute(
        "select id from asyncq.jobs where state = 'running' and locked_by like %s", (f"%:{workers[0].pid}:%",)
    )
    held = {row[0] for row in await cursor.fetchall()}

    async def only_held_are_left() -> bool:
        cursor = await conn.execute(
            "select count(*) from asyncq.jobs where state in ('available', 'running') and not id = any(%s)",
            (list(held),),
        )
        return await cursor.fetchone() == (0,)

    await eventually(only_held_are_left, 30, describe="the mails are sent")
    assert time.monotonic() - began < 30
    # The lease of these mails is a minute. What the killed worker held is given free by hand here, and rescued.
    await conn.execute("update asyncq.jobs set leased_until = now() - interval '1 s' where state = 'running'")
    await eventually(lambda: emptied(conn), 40, describe="what the killed worker held is sent too")
    sent = Counter(int(entry.note or "") for entry in await truth.rows(event="sent"))
    assert set(sent) == set(range(20_000)) - {777}
    twice = {number for number, times in sent.items() if times > 1}
    assert {ids[number] for number in twice} <= held
    assert [job.args for job in await app.patient.discarded(conn)] == [{"number": 777}]
