"""Put jobs in: one by one, in bulk, and one by one while a worker takes them out."""

import time

from benchmarks.stage import figures
from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def one_by_one(lab: Lab, contender: Contender) -> Figures:
    with lab.stage(contender, workers=0) as stage:
        stage.produced_warm()
        return stage.produced("enqueue", lab.sizes.singles)


def in_bulk(lab: Lab, contender: Contender) -> Figures:
    with lab.stage(contender, workers=0) as stage:
        stage.produced_warm()
        return stage.produced("enqueue_many", lab.sizes.jobs)


def streamed(lab: Lab, contender: Contender) -> Figures:
    """The rate from the first enqueue until the last job is durably finished."""
    count = lab.sizes.streamed
    with lab.stage(contender) as stage:
        stage.start()
        warm = stage.woken()
        began = time.perf_counter()
        before = stage.costs()
        stage.producer.ask("enqueue", count=count, timeout=600)
        produced = time.perf_counter() - began
        stage.until_handled(warm + count, lab.sizes.limit)
        stage.producer.ask("settle", limit=60.0, timeout=90)
        seconds = time.perf_counter() - began
        client, server = stage.costs()
        stage.stop()
        return figures(count, seconds, client - before[0], server - before[1]) | {"produced": count / produced}


PRODUCE = [
    Workload(
        "enqueue",
        "enqueue",
        one_by_one,
        (
            Shown("enqueue one by one, each its own commit; jobs/s", "rate"),
            Shown("CPU of client + server, µs a job", "both µs", better="less"),
        ),
    ),
    Workload(
        "enqueue-bulk",
        "enqueue",
        in_bulk,
        (
            Shown("enqueue {jobs} in bulk; jobs/s", "rate"),
            Shown("CPU of client + server, µs a job", "both µs", digits=1, better="less"),
        ),
    ),
    Workload(
        "stream",
        "stream",
        streamed,
        (
            Shown("one producer committing one by one while a worker drains; jobs/s", "rate"),
            Shown("CPU of the worker + server, µs a job", "both µs", better="less"),
        ),
    ),
]
