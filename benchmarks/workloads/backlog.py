"""Does the rate depend on how much waits? The first jobs of a large backlog against those of a small one."""

from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def backlog(lab: Lab, contender: Contender) -> Figures:
    sizes = lab.sizes
    rates: dict[str, float] = {}
    for name, count in (("plain", sizes.jobs), ("full", sizes.backlog)):
        with lab.stage(contender) as stage:
            # A quarter more than is handled: the measured part ends before the queue is dry.
            stage.fill(max(count, sizes.jobs * 5 // 4))
            rates[name] = stage.rate_of(sizes.jobs, sizes.limit / 2)
    return {"rate": rates["full"], "plain rate": rates["plain"], "ratio": rates["full"] / rates["plain"]}


BACKLOG = Workload(
    "backlog",
    "backlog",
    backlog,
    (Shown("{backlog} in the backlog, rate over plain", "ratio", digits=2),),
    stores=("postgresql",),
    most_rounds=1,
)
