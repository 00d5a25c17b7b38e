"""Drain a backlog of jobs that do nothing: what a worker, or two, can do at most."""

from functools import partial

from benchmarks.stage import Mode
from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def drain(lab: Lab, contender: Contender, *, mode: Mode, workers: int = 1) -> Figures:
    with lab.stage(contender, mode, workers=workers) as stage:
        stage.fill(lab.sizes.jobs)
        return stage.drain(lab.sizes.jobs, lab.sizes.limit)


DRAINS = [
    Workload(
        "drain",
        "drain",
        partial(drain, mode="tuned"),
        (
            Shown("drain {jobs} jobs, 1 worker process, tuned; jobs/s", "rate"),
            Shown("CPU of the client, µs a job", "client µs", digits=1, better="less"),
            Shown("CPU of the server, µs a job", "server µs", digits=1, better="less"),
            Shown("memory of the busy worker, MiB", "peak MiB", better="less"),
        ),
    ),
    Workload(
        "drain-default",
        "drain",
        partial(drain, mode="default"),
        (Shown("the same with default settings; jobs/s", "rate"),),
    ),
    Workload(
        "drain-two",
        "drain",
        partial(drain, mode="tuned", workers=2),
        (
            Shown("drain with 2 worker processes, tuned; jobs/s", "rate"),
            Shown("CPU of the clients, µs a job", "client µs", digits=1, better="less"),
            Shown("CPU of the server, µs a job", "server µs", digits=1, better="less"),
        ),
    ),
]
