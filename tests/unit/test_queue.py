"""Declaring queues and registering tasks: what cannot work is refused here, before any job runs."""

import functools
import math
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any

import pytest

from asyncq import (
    AsyncqError,
    ConfigurationError,
    Queue,
    RetryPolicy,
    SyncTask,
    Task,
    TaskAlreadyRegisteredError,
    Worker,
    WorkerOptions,
)

# --- A queue's options ------------------------------------------------------------------------------------------------


def test_a_queue_has_defaults() -> None:
    queue = Queue()
    assert (queue.name, queue.schema, queue.max_attempts, queue.weight) == ("default", "asyncq", 10, 1)
    assert (queue.lease, queue.retention, queue.retry) == (timedelta(seconds=60), timedelta(days=14), RetryPolicy())
    assert queue.tasks == {}
    assert repr(Queue("emails")) == "<Queue 'emails'>"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("name", each) for each in ("", "x" * 129, "a\nb", "\x00", "\ud800", None, 5, b"x")],
        *[("max_attempts", each) for each in (0, -1, 32_768, 40_000, True, 1.0, "3", None, 10**5_000)],
        *[("retry", each) for each in (5, "exponential", timedelta(1), True, [RetryPolicy()])],
        *[
            ("lease", each)
            for each in (
                timedelta(0),
                timedelta(seconds=0.49),
                timedelta(days=7, microseconds=1),
                -timedelta(1),
                60,
                None,
            )
        ],
        *[("weight", each) for each in (0, -1, 1_001, True, 1.5, "1", None)],
        *[("retention", each) for each in (-timedelta(1), timedelta(days=36_501), timedelta.max, 14, None)],
        *[("schema", each) for each in ("", "MyApp", "a-b", "a.b", "1a", "pg_x", "x" * 64, 'x"; --', "a\n", None, 5)],
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_wrong_option_of_a_queue_is_refused_and_named(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option) as raised:
        Queue(**given)
    assert not isinstance(raised.value, TaskAlreadyRegisteredError)
    str(raised.value).encode()


def at_once(attempts: int, error: BaseException) -> timedelta:
    return timedelta(0)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "\N{GRINNING FACE}" * 128, "max_attempts": 32_767, "weight": 1_000, "schema": "x" * 63},
        {"lease": timedelta(seconds=0.5), "retention": timedelta(0), "max_attempts": 1},
        {"lease": timedelta(days=7), "retention": timedelta(days=36_500)},
        {"retry": at_once},
        {"retry": RetryPolicy(factor=math.inf)},
    ],
    ids=range(5),
)
def test_the_ends_of_the_ranges_are_allowed(given: dict[str, Any]) -> None:
    Queue(**given)


# --- Registering ------------------------------------------------------------------------------------------------------

queue = Queue("emails", max_attempts=7, lease=timedelta(seconds=5))


@queue.task
async def plain(a: int) -> None: ...


@queue.task()
def blocking(a: int) -> int:
    return a + 1


@queue.task(
    name="other name",
    aliases=["old name", "older name"],
    timeout=timedelta(seconds=1),
    retry=lambda attempts, error: timedelta(0),
    max_attempts=2,
    priority=-5,
    lease=timedelta(seconds=9),
)
async def decided(a: int = 5) -> int:
    return a


def test_the_name_is_module_and_function() -> None:
    assert plain.name == f"{__name__}.plain"
    assert blocking.name == f"{__name__}.blocking"
    assert decided.name == "other name"


def test_the_queue_knows_its_tasks_by_all_their_names() -> None:
    assert queue.tasks[f"{__name__}.plain"] is plain
    assert queue.tasks["other name"] is queue.tasks["old name"] is queue.tasks["older name"] is decided


def test_options_come_from_the_task_or_from_its_queue() -> None:
    assert (plain.settings.max_attempts, plain.settings.lease, plain.settings.priority) == (7, timedelta(seconds=5), 0)
    assert (plain.settings.timeout, plain.settings.retry) == (None, queue.retry)
    assert (decided.settings.max_attempts, decided.settings.lease) == (2, timedelta(seconds=9))
    assert (decided.settings.priority, decided.settings.timeout) == (-5, timedelta(seconds=1))
    assert decided.settings.retry.backoff is not None


async def test_the_kind_of_function_decides_the_kind_of_task() -> None:
    assert type(plain) is Task
    assert type(decided) is Task
    assert type(blocking) is SyncTask
    assert await decided(a=7) == 7
    assert blocking(7) == 8


def test_a_task_looks_like_its_function() -> None:
    assert getattr(plain, "__name__", None) == "plain"
    assert plain.__module__ == __name__
    assert repr(decided) == "<Task 'other name' of queue 'emails'>"


class CallableAsync:
    async def __call__(self, a: int) -> int:
        return a


class CallableBlocking:
    def __call__(self, a: int) -> int:
        return a


async def two(a: int, b: int) -> int:
    return a + b


class Methods:
    @staticmethod
    async def static(a: int) -> int:
        return a

    @classmethod
    async def of_class(cls, a: int) -> int:
        return a

    async def of_instance(self, a: int) -> int:
        return a


async def test_other_callables_work_with_a_name() -> None:
    own = Queue("own")
    for name, handler, kind in (
        ("object", CallableAsync(), Task),
        ("blocking object", CallableBlocking(), SyncTask),
        ("partial", functools.partial(two, b=1), Task),
        ("static", Methods.static, Task),
        ("class", Methods.of_class, Task),
        ("instance", Methods().of_instance, Task),
        ("lambda", lambda: None, SyncTask),
    ):
        any_handler: Any = handler
        task = own.task(name=name)(any_handler)
        assert type(task) is kind, name
    assert await own.tasks["partial"](1) == 2


@pytest.mark.parametrize("handler", [lambda: None, CallableAsync(), functools.partial(two, 1, 2)])
def test_what_has_no_name_of_its_own_needs_one(handler: Any) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        Queue().task(handler)


def test_a_local_function_needs_a_name() -> None:
    async def local() -> None: ...

    with pytest.raises(ConfigurationError, match="name"):
        Queue().task(local)
    assert Queue().task(name="local")(local).name == "local"


def generator() -> Generator[int]:
    yield 1


async def async_generator() -> AsyncGenerator[int]:
    yield 1


@pytest.mark.parametrize("handler", [generator, async_generator, Methods, int, 5, "name", None, [plain]], ids=repr)
def test_what_is_no_handler_is_refused(handler: Any) -> None:
    with pytest.raises(ConfigurationError):
        Queue().task(name="x")(handler)


async def test_a_task_registered_on_a_second_queue_is_refused_or_still_runs_its_handler() -> None:
    """Taken for a plain function it would give a coroutine that nobody awaits: the job would succeed and do nothing."""
    second = Queue("second")
    handler: Any = decided
    try:
        again = second.task(name="again")(handler)
    except ConfigurationError:
        return
    assert type(again) is Task
    assert await again(3) == 3


async def untyped(a) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


async def variadic(*args: int) -> None: ...


async def keywords(**kwargs: int) -> None: ...


async def wrong_default(a: int = "x") -> None: ...  # type: ignore[assignment]


UNFIT: dict[str, Any] = {"annotation": untyped, "args": variadic, "kwargs": keywords, "default": wrong_default}


@pytest.mark.parametrize(("says", "handler"), UNFIT.items(), ids=UNFIT)
def test_a_signature_that_cannot_be_stored_is_refused(handler: Any, says: str) -> None:
    own = Queue()
    with pytest.raises(ConfigurationError, match=says):
        own.task(handler)
    assert own.tasks == {}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("name", each) for each in ("", "x" * 129, "a\x1b", 5)],
        *[("aliases", each) for each in ("one string", [""], ["ok", "x" * 129], [None], 5, None)],
        *[
            ("timeout", each)
            for each in (timedelta(0), -timedelta(1), timedelta(microseconds=999), timedelta(days=366), 5, True)
        ],
        *[("retry", each) for each in (5, "x", timedelta(1))],
        *[("max_attempts", each) for each in (0, 32_768, True, "1", 1.0)],
        *[("priority", each) for each in (-32_769, 32_768, True, 1.5, "1", None)],
        *[("lease", each) for each in (timedelta(0), timedelta(days=8), 5)],
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_wrong_option_of_a_task_is_refused_and_named(option: str, value: object) -> None:
    own = Queue()
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option):
        own.task(**given)(two)
    assert own.tasks == {}


def test_an_unknown_option_is_an_error() -> None:
    wrong: Any = Queue()
    with pytest.raises(ConfigurationError, match="no option 'time_out'"):
        wrong.task(time_out=timedelta(1))(two)


def test_two_tasks_of_one_name_are_refused_and_nothing_is_registered() -> None:
    own = Queue("own")
    own.task(name="a", aliases=["b"])(two)
    for given in ({"name": "a"}, {"name": "b"}, {"name": "c", "aliases": ["a"]}, {"name": "c", "aliases": ["d", "b"]}):
        wrong: Any = given
        with pytest.raises(TaskAlreadyRegisteredError, match="name="):
            own.task(**wrong)(two)
    assert set(own.tasks) == {"a", "b"}


# --- Workers ----------------------------------------------------------------------------------------------------------

DSN = "postgresql://localhost/nowhere"


def test_a_worker_connects_to_nothing_until_it_runs() -> None:
    worker = Worker([queue], DSN)
    assert list(worker.queues) == ["emails"]
    assert worker.tasks["old name"] is decided


def test_a_worker_needs_a_queue() -> None:
    with pytest.raises(ConfigurationError, match="at least one queue"):
        Worker([], DSN)


def test_a_worker_takes_one_queue_object_of_a_name() -> None:
    assert list(Worker([queue, queue], DSN).queues) == ["emails"]
    with pytest.raises(ConfigurationError, match="'emails'"):
        Worker([queue, Queue("emails")], DSN)


def test_a_worker_takes_one_task_of_a_name() -> None:
    other = Queue("other")
    other.task(name="older name")(two)
    with pytest.raises(TaskAlreadyRegisteredError, match="'older name'"):
        Worker([queue, other], DSN)
    with pytest.raises(TaskAlreadyRegisteredError, match="'older name'"):
        Worker([queue], DSN, registry=[other])


def test_the_queues_of_a_worker_are_in_one_schema() -> None:
    with pytest.raises(ConfigurationError, match="schema"):
        Worker([queue, Queue("other", schema="other")], DSN)


def test_a_task_of_the_registry_is_known_and_its_queue_not_served() -> None:
    other = Queue("other")
    other.task(name="of the other")(two)
    worker = Worker([queue], DSN, registry=[other, queue])
    assert "of the other" in worker.tasks
    assert list(worker.queues) == ["emails"]


@pytest.mark.parametrize(
    "wrong",
    ["postgresql://user:secret@host:port:port/x", "host=x no_such_word=1", "http://x", "postgresql://a:%zz@b/c"],
)
def test_a_dsn_that_cannot_be_read_is_refused_without_showing_it(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="DSN") as raised:
        Worker([queue], wrong)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("concurrency", each) for each in (0, -1, 10_001, True, 1.0, "5", None)],
        *[
            ("poll", each)
            for each in (timedelta(0), timedelta(seconds=0.09), timedelta(days=2), -timedelta(1), 60, None)
        ],
        *[("grace", each) for each in (-timedelta(1), timedelta(days=8), 30, None)],
        *[("cleanup", each) for each in (timedelta(0), timedelta(seconds=0.9), timedelta(days=8), 5)],
        *[("strict", each) for each in (1, "yes", None)],
        *[("burst", each) for each in (0, "no", None)],
        *[("durable", each) for each in (0, "no", None)],
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_wrong_option_of_a_worker_is_refused_and_named(option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=option):
        WorkerOptions(**given)


def test_every_configuration_error_is_one_of_asyncqs_errors() -> None:
    assert issubclass(ConfigurationError, AsyncqError)
    assert issubclass(TaskAlreadyRegisteredError, ConfigurationError)
