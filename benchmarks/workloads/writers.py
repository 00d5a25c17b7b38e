"""Many connections that each commit jobs one by one: what does notifying cost them?

Three statements take turns: the library's own, one that never notifies, and one that always does. Beside the writers
a worker drains a backlog of the same queue, or it was idle before they began, and does what they put in.
"""

from functools import partial

from benchmarks.process import SystemProcess
from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload

VARIANTS = {"library": "the library", "without": "no notification", "always": "always notifying"}


def writers(lab: Lab, contender: Contender, *, busy: bool) -> Figures:
    found: Figures = {}
    for variant in VARIANTS:
        with lab.stage(contender) as stage:
            writing = [stage.producer, stage.another()]
            if busy:
                # More than is drained meanwhile.
                stage.preload(round(lab.sizes.write_seconds * 40_000))
            stage.calm()
            stage.start()
            for process in writing:
                ask(process, variant, lab.sizes.writers // 2, lab.sizes.write_seconds)
            made = sum(process.answer(120)["result"] for process in writing)
            drained = stage.handled.total()
            stage.stop()
        found[f"{variant} rate"] = made / lab.sizes.write_seconds
        found[f"{variant} drained"] = drained / lab.sizes.write_seconds
    return found


def ask(process: SystemProcess, variant: str, connections: int, limit: float) -> None:
    process.send("call", operation="write", variant=variant, connections=connections, limit=limit)


def workload(name: str, title: str, *, busy: bool) -> Workload:
    rows = tuple(
        Shown(f"{{writers}} writers, {title}, {words}; jobs/s", f"{variant} rate")
        for variant, words in VARIANTS.items()
    )
    return Workload(
        f"writers-{name}",
        "writers",
        partial(writers, busy=busy),
        rows,
        only=("asyncq",),
        most_rounds=3,
        by_default=False,
    )


WRITERS = [
    workload("busy", "a worker with a backlog beside them", busy=True),
    workload("idle", "an idle worker beside them", busy=False),
]
