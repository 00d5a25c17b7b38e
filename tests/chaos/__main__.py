"""`python -m tests.chaos [--seed N] [--seconds S]`: workers under faults, judged; exit code 1 if anything is wrong."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio
import psycopg

from tests.chaos.faults import inject
from tests.chaos.judge import judge
from tests.chaos.stage import Stage
from tests.servers import DEFAULT_MAJOR, Servers

WORKERS, PRODUCERS = 4, 3

DRAIN_SECONDS = 90.0
"""How long all that is left may take once nothing happens any more."""

IDLE_SECONDS = 15.0
"""How long jobs may be due and nothing happen to any."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of all that is drawn at random; another one each time if not given")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults are injected (default: 60)")
    parser.add_argument("--postgres", type=int, default=DEFAULT_MAJOR, metavar="MAJOR")
    return parser.parse_args()


async def run(stage: Stage, seconds: float) -> tuple[Counter[str], list[str]]:
    """Let it happen, then let it be, and wait until all is done; gives the faults, and what never was."""
    faults: Counter[str] = Counter()
    wrong: list[str] = []
    await stage.prepare()
    async with anyio.create_task_group() as group:
        stage.fleet.start(WORKERS)
        group.start_soon(stage.fleet.supervise)
        with anyio.CancelScope() as producing:
            async with anyio.create_task_group() as producers:
                for _ in range(PRODUCERS):
                    producers.start_soon(stage.produce)
                await inject(stage, seconds, faults)
                producing.cancel()
        wrong = await drained(stage)
        group.cancel_scope.cancel()
    await stage.note_deadlocks()
    return faults, wrong


async def drained(stage: Stage) -> list[str]:
    left = 0
    ends = anyio.current_time() + DRAIN_SECONDS
    while anyio.current_time() < ends:
        try:
            left, due, quiet = await stage.waiting()
        except psycopg.OperationalError:
            await anyio.sleep(0.2)
            continue
        if left == 0:
            return []
        if due and quiet > IDLE_SECONDS:
            return [f"{due} jobs are due, and nothing has happened for {quiet:.0f} s"]
        await anyio.sleep(0.2)
    return [f"{left} jobs are left after {DRAIN_SECONDS:.0f} s of peace"]


async def main() -> int:
    options = arguments()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    began = time.monotonic()
    servers = Servers()
    logs = Path(tempfile.mkdtemp(prefix="asyncq-chaos-"))
    stage = Stage(servers.own(options.postgres), random.Random(seed), logs)
    try:
        faults, wrong = await run(stage, options.seconds)
        verdict = await judge(stage.dsn, stage.withdrawn, stage.deadlocks)
    finally:
        stage.fleet.close()
        servers.close()
    lines = [f"| {name} | {count} |" for name, count in sorted(faults.items())]
    lines += [f"| worker ended with {code} | {count} |" for code, count in sorted(stage.fleet.codes.items())]
    sys.stdout.write("\n".join(["| fault | times |", "|---|---:|", *lines]) + "\n\n")
    kinds = ", ".join(f"{count} {kind}" for kind, count in verdict.promised.most_common())
    sys.stdout.write(
        f"{verdict.promised.total()} jobs promised ({kinds}), {len(stage.withdrawn)} rolled back; {verdict.ran} runs,"
        f" {verdict.rescued} rescued, {verdict.overlaps} ran on after their lease; {time.monotonic() - began:.0f} s\n"
    )
    for each in (wrong + verdict.wrong)[:20]:
        sys.stdout.write(f"WRONG: {each}\n")
    if wrong or verdict.wrong:
        sys.stdout.write(f"{len(wrong + verdict.wrong)} things are wrong; the workers' logs are in {logs}\n")
        return 1
    sys.stdout.write("nothing is wrong\n")
    return 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
