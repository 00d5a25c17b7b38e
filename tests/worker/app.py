"""The application that the worker processes of these tests run. Its handlers write what they do into the truth log."""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta

from asyncq import Queue, RetryPolicy, Snooze, current_job
from tests.eventually import eventually
from tests.truth import TruthLog

log = TruthLog(os.environ.get("ASYNCQ_DSN", ""))

soon = RetryPolicy(base=timedelta(seconds=0.1), factor=1.0, jitter=0.0)
work = Queue("work", lease=timedelta(seconds=1), retry=soon)
patient = Queue("patient", retry=soon)


async def note(event: str, text: str | None = None) -> None:
    job = current_job()
    await log.write(job.id, job.attempts, event, text)


@work.task
async def quick(number: int) -> None:
    await note("start", str(number))


@work.task
async def lasting(seconds: float) -> None:
    await note("start")
    await asyncio.sleep(seconds)
    await note("end")


@patient.task
async def lasting_patiently(seconds: float) -> None:
    await note("start")
    await asyncio.sleep(seconds)
    await note("end")


@work.task
async def slow_at_first() -> None:
    """Takes for ever at its first attempt, and half a second at later ones."""
    await note("start")
    await asyncio.sleep(3600 if current_job().attempts == 1 else 0.5)
    await note("end")


@work.task
async def killing() -> None:
    await note("start")
    os.kill(os.getpid(), signal.SIGKILL)


@work.task
async def stubborn() -> None:
    await note("start")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)


@work.task
async def blocking(seconds: float) -> None:
    """Holds the whole event loop, as it should not."""
    await note("start")
    stand_still(seconds)
    await note("end")


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


@work.task
async def blocking_in_c() -> None:
    """Holds the event loop in C, where no signal is seen; other threads run."""
    await note("start")
    lock_twice()


def lock_twice() -> None:
    mutex = ctypes.create_string_buffer(128)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


@work.task
async def loud() -> None:
    """Writes more to stderr than a pipe holds."""
    await note("start")
    sys.stderr.write("x" * 1_000_000)


@work.task
async def keeping_the_lock(seconds: float) -> None:
    """Holds the whole interpreter at its first attempt; at later ones it waits as it should."""
    await note("start")
    if current_job().attempts == 1:
        ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1e6)))  # unlike CDLL, it keeps the global lock
    await asyncio.sleep(3600)


@patient.task
def in_thread(seconds: float) -> None:
    job = current_job()
    log.write_blocking(job.id, job.attempts, "start")
    time.sleep(seconds)
    log.write_blocking(job.id, job.attempts, "end")


@patient.task
async def leaves_a_thread() -> None:
    await note("start")
    await asyncio.to_thread(time.sleep, 3600)


@patient.task(max_attempts=1)
async def exits_in_a_child() -> None:
    async def child() -> None:
        raise SystemExit(3)

    await note("start")
    async with asyncio.TaskGroup() as group:
        group.create_task(child())


@patient.task
async def takes_a_signal() -> None:
    """Ends once signals go where they went before."""

    def where() -> int:
        now = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(now)
        return now

    before = where()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)
    await eventually(lambda: where() == before)
    await note("end")


@patient.task
def forks() -> None:
    """Forks a process and terminates it."""
    job = current_job()
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    child.start()
    child.terminate()
    child.join(10)
    log.write_blocking(job.id, job.attempts, "end", str(child.exitcode))


@patient.task
async def snoozing() -> None:
    await note("start")
    raise Snooze(timedelta(seconds=0.1))


@patient.task(max_attempts=3)
async def mail(number: int) -> None:
    """20 ms of sending; 2 % of the mails fail once, one is poison."""
    job = current_job()
    await asyncio.sleep(0.02)
    if number == 777:
        raise ValueError("a mail that nobody can send")
    if number % 50 == 3 and job.attempts == 1:
        raise ConnectionError("the mail server hung up")
    await log.write(job.id, job.attempts, "sent", str(number))
