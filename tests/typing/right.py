"""Calls that both type checkers must accept, and the types that they must see.

Nothing here runs: `test_typing.py` gives the file to basedpyright and mypy.
"""

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg
from psycopg.rows import DictRow
from psycopg_pool import AsyncConnectionPool

from asyncq import (
    BoundTask,
    Deferred,
    ExitCode,
    Job,
    Queue,
    RetryPolicy,
    RunningJob,
    SyncTask,
    Task,
    TaskArgs,
    Worker,
    WorkerOptions,
    current_job,
)

queue = Queue("typing", max_attempts=3, retry=RetryPolicy(give_up_on=(ValueError,)), lease=timedelta(seconds=30))


@queue.task
async def bare(user_id: int, template: str = "plain", *, connection: str = "x") -> int:
    return user_id


@queue.task(name="typing.named", aliases=["typing.old"], timeout=timedelta(seconds=5), max_attempts=5, priority=3)
async def named(user_id: int) -> str:
    return str(user_id)


@queue.task(retry=lambda attempts, error: timedelta(seconds=attempts))
async def without_arguments() -> None: ...


@queue.task
def bare_sync(path: str) -> bytes:
    return path.encode()


@queue.task(timeout=timedelta(minutes=1))
def named_sync(path: str, *, times: int = 1) -> bytes:
    return path.encode() * times


@queue.task()
async def empty_parentheses(flag: bool) -> list[int]:  # noqa: FBT001
    return [int(flag)]


async def tasks_keep_their_signature() -> None:
    assert_type(await bare(1), int)
    assert_type(await bare(1, "plain", connection="y"), int)
    assert_type(await assert_type(bare(1), Coroutine[Any, Any, int]), int)
    assert_type(await named(1), str)
    assert_type(await without_arguments(), None)
    assert_type(bare_sync("p"), bytes)
    assert_type(named_sync("p", times=2), bytes)
    assert_type(await empty_parentheses(flag=True), list[int])


async def defer_gives_the_type_of_the_result(connection: psycopg.AsyncConnection) -> None:
    assert_type(await bare.defer(connection, 1), Deferred[int])
    assert_type(await bare.defer(connection, 1, connection="y"), Deferred[int])
    assert_type(await bare.defer(connection, user_id=1, template="t"), Deferred[int])
    assert_type(await named.defer(connection, 1), Deferred[str])
    assert_type(await without_arguments.defer(connection), Deferred[None])
    assert_type(await bare_sync.defer(connection, "p"), Deferred[bytes])
    assert_type(await named_sync.defer(connection, "p", times=2), Deferred[bytes])
    deferred = await bare.defer(connection, 1)
    assert_type(deferred.id, int)
    assert_type(deferred.run_at, datetime)
    covariant: Deferred[object] = deferred
    assert_type(covariant.task, str)


async def options_keep_the_signature(connection: psycopg.AsyncConnection) -> None:
    later = bare.options(delay=timedelta(days=1), priority=5, queue="other", max_attempts=1)
    assert_type(await later.defer(connection, 1, template="t"), Deferred[int])
    assert_type(await bare.options(run_at=datetime(2030, 1, 1, tzinfo=UTC)).defer(connection, 1), Deferred[int])
    assert_type(await bare_sync.options(priority=-1).defer(connection, "p"), Deferred[bytes])
    assert_type(await later.defer_many(connection, (bare.args(i, template="z") for i in range(3))), list[int])


async def many_at_once(connection: psycopg.AsyncConnection) -> None:
    assert_type(await bare.defer_many(connection, [bare.args(i) for i in range(3)]), list[int])
    assert_type(await bare_sync.defer_many(connection, (bare_sync.args(p) for p in "abc")), list[int])


async def connections_of_any_row_type(
    dicts: psycopg.AsyncConnection[DictRow], pool: AsyncConnectionPool[psycopg.AsyncConnection[DictRow]]
) -> None:
    assert_type(await bare.defer(dicts, 1), Deferred[int])
    async with pool.connection() as connection:
        assert_type(await bare.defer(connection, 1), Deferred[int])
    assert_type(await Worker([queue], pool, WorkerOptions(burst=True)).run(), ExitCode)


async def dead_letters(connection: psycopg.AsyncConnection) -> None:
    jobs = await queue.discarded(connection, limit=10)
    assert_type(jobs, list[Job])
    assert_type(jobs[0].args, dict[str, Any])
    assert_type(await queue.replay(connection), list[int])
    assert_type(await queue.replay(connection, [job.id for job in jobs]), list[int])


async def the_running_job() -> None:
    assert_type(current_job(), RunningJob)
    assert_type(current_job().attempts, int)
    assert_type(current_job().cancel_requested, bool)


async def the_classes_can_be_named_in_annotations(connection: psycopg.AsyncConnection) -> None:
    async def put(
        task: Task[[int], str] | BoundTask[[int], str], call: TaskArgs[[int]], thread: SyncTask[[str], bytes]
    ) -> Deferred[str]:
        await task.defer_many(connection, [call])
        thread("p")
        return await task.defer(connection, 1)

    assert_type(await put(named, named.args(1), bare_sync), Deferred[str])
    assert_type(await put(named.options(priority=1), named.args(1), bare_sync), Deferred[str])
