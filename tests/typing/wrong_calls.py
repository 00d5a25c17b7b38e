"""Calls that both type checkers must refuse: each line that is marked `# wrong`, and no other.

Nothing here runs: `test_typing.py` gives the file to basedpyright and mypy.
"""

from datetime import timedelta

import psycopg

from asyncq import Queue, RetryPolicy, Task, Worker, WorkerOptions

queue = Queue("typing")


@queue.task
async def send(user_id: int, template: str = "plain", *, copies: int = 1) -> int:
    return user_id


@queue.task(name="typing.other")
async def other(name: str) -> None: ...


@queue.task
def resize(path: str) -> bytes:
    return path.encode()


async def arguments(connection: psycopg.AsyncConnection) -> None:
    await send.defer(connection, "1")  # wrong: the argument's type
    await send.defer(connection)  # wrong: an argument is missing
    await send.defer(connection, 1, tmplate="x")  # wrong: no parameter has this name
    await send.defer(connection, 1, "plain", 2)  # wrong: keyword only
    await send.defer(1)  # wrong: no connection
    await send.options(priority=1).defer(connection, "1")  # wrong: options do not loosen it
    await resize.defer(connection, 1)  # wrong: the same for threads
    await send("1")  # wrong: called as a function
    resize(1)  # wrong: the same


async def many(connection: psycopg.AsyncConnection) -> None:
    send.args("x")  # wrong: the argument's type
    resize.args()  # wrong: an argument is missing
    await send.defer_many(connection, [other.args("x")])  # wrong: another task's arguments
    await send.options(priority=1).defer_many(connection, [other.args("x")])  # wrong: the same
    await send.defer_many(connection, [1, 2])  # wrong: not made by args()


async def options(connection: psycopg.AsyncConnection) -> None:
    send.options(delay=5)  # wrong: a timedelta is wanted
    send.options(run_at="2030-01-01")  # wrong: a datetime is wanted
    send.options(priority="high")  # wrong: a number is wanted
    send.options(timeout=timedelta(seconds=1))  # wrong: not of a call, but of the task


async def results(connection: psycopg.AsyncConnection) -> str:
    await resize("p")  # wrong: it is no coroutine function
    (await send.defer(connection, 1)).no_such_thing()  # wrong: there is no such method
    (await send.defer(connection, 1)).id = 7  # wrong: it cannot be changed
    return await send(1)  # wrong: it gives an int


def annotation() -> Task[[str], int]:
    return send  # wrong: another signature


def declarations() -> None:
    Queue(7)  # wrong: a name is text
    Queue("q", max_attempts="3")  # wrong: a number is wanted
    Queue("q", lease=30)  # wrong: a timedelta is wanted
    Queue("q", retry=lambda attempts: timedelta(0))  # wrong: a backoff takes the failure too
    queue.task(timeout=5)  # wrong: a timedelta is wanted
    queue.task(nme="x")  # wrong: no option has this name
    RetryPolicy(give_up_on=ValueError)  # wrong: a tuple is wanted
    WorkerOptions(100)  # wrong: keyword only
    Worker(queue, "postgresql://localhost/db")  # wrong: several queues are wanted
