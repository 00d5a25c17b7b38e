"""Large arguments, and such that nobody can read: they come by themselves, and concern nobody else."""

from datetime import timedelta
from typing import Any

import psycopg

from asyncq import Queue, Task, WorkerOptions, current_job
from tests.eventually import eventually
from tests.sql import rows
from tests.worker.inside import running_worker

RARE = WorkerOptions(poll=timedelta(minutes=5))


def collecting(queue: Queue) -> tuple[Task[[str], None], list[str]]:
    """Give a queue a task, and the texts with which it ran."""
    ran: list[str] = []

    @queue.task(name="task")
    async def task(text: str) -> None:
        ran.append(text)

    return task, ran


async def test_large_arguments_arrive(dsn: str, conn: psycopg.AsyncConnection) -> None:
    queue = Queue()
    ran: list[tuple[list[int], dict[str, Any]]] = []

    @queue.task(name="task")
    async def task(numbers: list[int]) -> None:
        ran.append((numbers, current_job().args))

    numbers = [number * 7_919 % 1_000_003 for number in range(200_000)]
    async with running_worker(queue, dsn, RARE):
        await task.defer(conn, numbers)
        await eventually(lambda: ran, describe="it runs")
    assert ran == [(numbers, {"numbers": numbers})]
    assert await rows.count(conn) == 0


async def test_arguments_that_the_server_cannot_write_out_discard_their_job_and_no_other(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue("q")
    task, ran = collecting(queue)

    # As text each of these is six characters: more than a gigabyte, which PostgreSQL has no strings for.
    bomb = "insert into asyncq.jobs (queue, task, args) select 'q', 'task', jsonb_build_object('text', repeat(%s, %s))"
    await conn.execute(bomb, ("\x01", 180_000_000))
    await conn.execute(bomb, ("x", 40_000_000))
    await task.defer_many(conn, [task.args(str(number)) for number in range(20)])
    async with running_worker(queue, dsn, RARE):
        await eventually(lambda: len(ran) == 20, 20, describe="the others run")

        async def discarded() -> bool:
            return len(await rows.ids(conn, "discarded")) == 2

        await eventually(discarded, 30, describe="both are discarded")
    assert sorted(ran, key=int) == [str(number) for number in range(20)]
    first, second = await rows.rows(conn, "select attempts, last_error from asyncq.jobs order by id")
    assert first[0] == second[0] == 1
    assert "the server cannot give the arguments" in first[1]
    assert "40,000,012 bytes of JSON; 33,554,432 is the most" in second[1]


async def test_large_arguments_whose_lease_is_lost_meanwhile_start_nothing(
    dsn: str, conn: psycopg.AsyncConnection
) -> None:
    queue = Queue("q")
    _, ran = collecting(queue)

    # Somebody takes the claim away at once.
    await conn.execute("""
        create function public.taken() returns trigger language plpgsql as $$
        begin
            update asyncq.jobs set lease_token = 1 where id = new.id;
            return null;
        end $$;
        create trigger taken after update on asyncq.jobs for each row
            when (new.state = 'running' and old.state = 'available') execute function public.taken()
    """)
    await conn.execute(
        "insert into asyncq.jobs (queue, task, args)"
        " select 'q', 'task', jsonb_build_object('text', string_agg(md5(n::text), '')) from generate_series(1, 9000) n"
    )
    async with running_worker(queue, dsn, RARE):

        async def taken() -> bool:
            return len(await rows.ids(conn, "running")) == 1

        await eventually(taken, describe="it was claimed")
    assert ran == []
    assert await rows.value(conn, "select lease_token from asyncq.jobs") == 1
