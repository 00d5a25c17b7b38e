"""From just before the call that puts a job in, and from its return, to the start of its handler, on an idle worker."""

from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def latency(lab: Lab, contender: Contender) -> Figures:
    with lab.stage(contender) as stage:
        stage.start()
        warm = stage.woken()
        calls = stage.producer.ask("ping", count=lab.sizes.timed, pause=lab.sizes.pause, timeout=300)["calls"]
        in_order = stage.stop()[warm:]
        waits = sorted(in_order)
        # Its handler may start before the call has come back.
        after = sorted(max(wait - call, 0.0) for wait, call in zip(in_order, calls, strict=True))
        return {
            "p50": quantile(waits, 0.50),
            "p99": quantile(waits, 0.99),
            "max": waits[-1],
            "count": len(waits),
            "p50 after": quantile(after, 0.50),
            "p99 after": quantile(after, 0.99),
        }


def quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


LATENCY = Workload(
    "latency",
    "latency",
    latency,
    (
        Shown("enqueue call to handler start on an idle worker, p50; ms", "p50", digits=2, better="less"),
        Shown("the same, p99; ms", "p99", digits=2, better="less"),
        Shown("return of the call to handler start, p50; ms", "p50 after", digits=2, better="less"),
        Shown("the same, p99; ms", "p99 after", digits=2, better="less"),
    ),
)
