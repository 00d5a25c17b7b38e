"""From just before the call that puts a job in to the start of its handler, on a worker that idles."""

from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def latency(lab: Lab, contender: Contender) -> Figures:
    with lab.stage(contender) as stage:
        stage.start()
        warm = stage.woken()
        stage.producer.ask("ping", count=lab.sizes.timed, pause=lab.sizes.pause, timeout=300)
        waits = sorted(stage.stop()[warm:])
        return {"p50": quantile(waits, 0.50), "p99": quantile(waits, 0.99), "max": waits[-1], "count": len(waits)}


def quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


LATENCY = Workload(
    "latency",
    "latency",
    latency,
    (
        Shown("enqueue call to handler start on an idle worker, p50; ms", "p50", digits=2, better="less"),
        Shown("the same, p99; ms", "p99", digits=2, better="less"),
    ),
)
