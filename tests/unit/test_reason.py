"""Why a job does not run, decided from what is known: each reason, and what comes first where there are several."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from asyncq.job import JobState
from asyncq.reason import MOST_AHEAD, JobFacts, Reason, WorkerStatus, explain

NOW = datetime(2030, 1, 31, 8, tzinfo=UTC)
AGO, LATER = NOW - timedelta(seconds=90), NOW + timedelta(hours=5)

DUE = JobFacts(
    id=17,
    queue="emails",
    task="shop.send",
    state=JobState.AVAILABLE,
    priority=0,
    attempts=0,
    max_attempts=10,
    run_at=AGO,
    created_at=AGO,
    attempted_at=None,
    leased_until=None,
    finished_at=None,
    locked_by=None,
    now=NOW,
    ahead=0,
)
RUNNING = replace(
    DUE, state=JobState.RUNNING, attempts=2, attempted_at=AGO, leased_until=NOW + timedelta(seconds=40), locked_by="w1"
)
OVER = replace(RUNNING, leased_until=NOW - timedelta(seconds=5))
FAILED = replace(DUE, attempts=3, run_at=LATER, error="ValueError: no")
W1 = WorkerStatus(
    id="w1",
    queues=["emails", "reports"],
    tasks=["shop.send"],
    concurrency=10,
    release="1",
    started_at=AGO,
    seen_at=NOW,
    stopping_at=None,
    alive=True,
    running=3,
)
DEAD = replace(W1, id="dead", alive=False)
OTHER = replace(W1, id="other", queues=["reports"])
LACKING = replace(W1, id="lacking", tasks=["shop.pay"])
STOPPING = replace(W1, id="stopping", stopping_at=AGO)
FULL = replace(W1, id="full", running=10)

ENDED = {"finished_at": AGO, "attempts": 10, "error": "ValueError: no"}


@pytest.mark.parametrize(
    ("job", "workers", "reason", "says"),
    [
        (None, [W1], Reason.GONE, "no such job"),
        (
            FAILED,
            [],
            Reason.LATER,
            "due in 5 h, at 2030-01-31 13:00:00+00:00. It failed before: 3 attempts of 10: Value",
        ),
        (replace(DUE, run_at=LATER), [], Reason.LATER, "due in 5 h"),
        (DUE, [], Reason.NO_WORKER, "due for 90 s, and no worker that is alive serves its queue, emails. Start one."),
        (DUE, [DEAD, OTHER], Reason.NO_WORKER, "no worker"),
        (DUE, [LACKING, DEAD, OTHER], Reason.UNKNOWN_TASK, "no worker of its queue, emails, has a task shop.send"),
        (DUE, [LACKING, STOPPING], Reason.STOPPING, "are stopping"),
        (replace(DUE, ahead=1200), [W1], Reason.BEHIND, "behind 1,200 due jobs of its queue, emails; 3 of 10 slots"),
        (replace(DUE, ahead=MOST_AHEAD), [W1, FULL], Reason.BEHIND, "10,000 or more due jobs"),
        (replace(DUE, ahead=5), [FULL], Reason.BEHIND, "More workers or slots help"),
        (DUE, [FULL, STOPPING], Reason.BUSY, "but 10 of 10 slots of its workers are taken"),
        (DUE, [W1, FULL], Reason.NEXT, "13 of 20 slots"),
        (RUNNING, [W1], Reason.RUNNING, "running for 90 s, attempt 2 of 10, in worker w1."),
        (RUNNING, [replace(W1, alive=False)], Reason.RUNNING, "has not said for a while that it lives"),
        (RUNNING, [], Reason.RUNNING, "has not said for a while that it lives"),
        (OVER, [W1], Reason.LEASE_OVER, "Its lease ran out 5 s ago: the worker died"),
        (OVER, [DEAD], Reason.LEASE_OVER, "No worker is alive to take it back: start one."),
        (replace(DUE, state=JobState.CANCELLED, **ENDED), [], Reason.CANCELLED, "cancelled 90 s ago: ValueError: no."),
        (
            replace(DUE, state=JobState.DISCARDED, **ENDED),
            [],
            Reason.DISCARDED,
            "discarded 90 s ago, after 10 attempts: ValueError: no. 'asyncq replay' puts it back: queue emails, id 17.",
        ),
        (replace(DUE, state=JobState.DISCARDED, finished_at=AGO, attempts=1), [], Reason.DISCARDED, "1 attempt."),
    ],
)
def test_each_reason(job: JobFacts | None, workers: Sequence[WorkerStatus], reason: Reason, says: str) -> None:
    found = explain(17, job, workers)
    assert found.reason is reason
    assert says in str(found)
    assert (found.job_id, found.facts) == (17, job)
