"""What a worker costs that has nothing to do: statements, processor time and memory."""

import time

from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload


def idle(lab: Lab, contender: Contender) -> Figures:
    seconds = lab.sizes.idle_seconds
    with lab.stage(contender, "default") as stage:
        stage.start()
        stage.woken()
        time.sleep(min(3.0, seconds))
        memory = stage.workers[0].memory_mib()
        before = stage.costs()
        time.sleep(seconds)
        client, server = (now - then for now, then in zip(stage.costs(), before, strict=True))
        found: Figures = {"client ms": client * 1e3 * 60 / seconds, "server ms": server * 1e3 * 60 / seconds}
        if contender.description.store == "postgresql":
            # Counted in a second interval, because writing the statements down is work of its own.
            with lab.postgres.counted(stage.database) as counted:
                time.sleep(seconds)
            found |= counted | {"statements": counted["statements"] * 60 / seconds}
        stage.stop()
    return found | {"MiB": memory}


IDLE = Workload(
    "idle",
    "idle",
    idle,
    (
        Shown("an idle worker: statements a minute", "statements", better="less"),
        Shown("its CPU, ms a minute", "client ms", digits=1, better="less"),
        Shown("the server's CPU, ms a minute", "server ms", digits=1, better="less"),
        Shown("its memory, MiB", "MiB", better="less"),
    ),
    skip=("raw",),
    most_rounds=1,
)
