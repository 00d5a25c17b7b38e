"""Adversities that a claim should not feel: the rate with each over the rate without, taken in turns."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.stage import Stage
from benchmarks.workloads.pinned import steady
from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload

Preload = Callable[[Stage, Lab], None]


def due(stage: Stage, lab: Lab, *queues: str) -> None:
    """What is to be handled, and a quarter more: the measured part ends before the queues are dry."""
    names = queues or ("bench",)
    for name in names:
        stage.preload(lab.sizes.jobs * 5 // 4 // len(names) + 1, queue=name)


def tomorrow(stage: Stage, lab: Lab) -> None:
    stage.preload(lab.sizes.scheduled, priority=5, offset="1 day")


def unknown(stage: Stage, lab: Lab) -> None:
    stage.preload(lab.sizes.unknown, task="bench.unknown", offset="-2 hours")


def against_plain(lab: Lab, contender: Contender, *, adversity: Preload) -> Figures:
    def rate(preload: Preload | None) -> float:
        with lab.stage(contender) as stage:
            if preload is not None:
                preload(stage, lab)
            due(stage, lab)
            return measured(stage, lab)

    return compared(plain=rate(None), adverse=rate(adversity))


def three_queues(lab: Lab, contender: Contender) -> Figures:
    names = ["bench", "bench_2", "bench_3"]

    def rate(count: int) -> float:
        with lab.stage(contender, queues=names) as stage:
            for name in names:
                stage.preload(count, queue=name)
            return measured(stage, lab)

    return compared(plain=rate(lab.sizes.jobs * 5 // 12 + 1), adverse=rate(lab.sizes.backlog))


def million(lab: Lab, contender: Contender) -> Figures:
    """A backlog kept at 1,000 and one kept at a million: both have the same producer beside them."""

    def rate(backlog: int) -> float:
        found: dict[str, Any] = steady(
            lab, contender, backlog=backlog, limit=lab.sizes.steady_seconds, past_library=True, batch=500
        )
        return float(found["rate"])

    return compared(plain=rate(1_000), adverse=rate(lab.sizes.million))


def measured(stage: Stage, lab: Lab) -> float:
    stage.calm()
    return stage.rate_of(lab.sizes.jobs, lab.sizes.limit)


def compared(*, plain: float, adverse: float) -> Figures:
    return {"plain rate": plain, "rate": adverse, "ratio": adverse / plain}


def workload(name: str, title: str, measure: Callable[[Lab, Contender], Figures]) -> Workload:
    rows = (Shown(f"{title}, rate over plain", "ratio", digits=2), Shown("its rate; jobs/s", "rate"))
    return Workload(f"flat-{name}", "flat", measure, rows, only=("asyncq",), most_rounds=3, by_default=False)


FLAT = [
    workload("million", "backlog kept at {million} against 1,000", million),
    workload("tomorrow", "{scheduled} of a higher priority for tomorrow", partial(against_plain, adversity=tomorrow)),
    workload("queues", "3 queues of {backlog}", three_queues),
    workload("unknown", "{unknown} of an unknown task at the head", partial(against_plain, adversity=unknown)),
]
