"""`python -m benchmarks`: measure asyncq beside other queues and the bare statements; `report FILE` shows it again."""

import argparse
import dataclasses
import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import driver
from benchmarks.chart import chart
from benchmarks.environments import default_directory, descriptions
from benchmarks.report import report
from benchmarks.stage import QUICK, Sizes
from benchmarks.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    groups = ", ".join(dict.fromkeys(workload.group for workload in WORKLOADS))
    named = ", ".join(dict.fromkeys(workload.group for workload in WORKLOADS if not workload.by_default))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="NAME,…", help=f"workloads or groups of them: {groups}; only if named: {named}"
    )
    parser.add_argument("--systems", metavar="NAME,…", help=f"of {', '.join(descriptions())}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="asyncq and raw, everything once and tiny, no times asserted"
    )
    parser.add_argument("--jobs", type=int, help="jobs of a drain, instead of 20,000")
    parser.add_argument("--limit", type=float, help="seconds after which a drain is cut off, instead of 45")
    parser.add_argument("--minutes", type=float, help="how long the horizon is pinned in `pinned`, instead of 10")
    parser.add_argument("--no-tuning", action="store_true", help="take each system's first tuned settings")
    parser.add_argument("--dsn", help="a PostgreSQL on this machine to make databases bench_… in, instead of our own")
    parser.add_argument("--postgres", type=int, metavar="MAJOR", help="major of our own: 15 if it is there")
    parser.add_argument("--environments", type=Path, default=default_directory(), metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--name", help="of the results file, instead of the date")
    return parser.parse_args(given)


def run_of(options: argparse.Namespace) -> driver.Run:
    sizes = QUICK if options.quick else Sizes()
    asked = {"jobs": options.jobs, "limit": options.limit, "pinned_minutes": options.minutes}
    sizes = dataclasses.replace(sizes, **{name: value for name, value in asked.items() if value is not None})
    names = options.systems.split(",") if options.systems else list(descriptions())
    if unknown := set(names) - set(descriptions()):
        raise SystemExit(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(descriptions())}")
    if options.quick:
        names = [name for name in names if descriptions()[name].own]
    only = options.only.split(",") if options.only else None
    if options.quick and only is None:
        only = [workload.name for workload in WORKLOADS]
    return driver.Run(
        systems=names,
        workloads=driver.chosen(only),
        rounds=1 if options.quick else options.rounds,
        sizes=sizes,
        dsn=options.dsn,
        postgres=options.postgres,
        environments=options.environments,
        tune=not (options.quick or options.no_tuning),
    )


def show(path: Path) -> None:
    """Print the report of a results file, and write it and the chart beside it."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    text = report(results)
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    if drawn := chart(results):
        (path.parent / "drain.svg").write_text(drawn, encoding="utf-8")
    print(text)


def main() -> int:
    if sys.argv[1:2] == ["report"]:
        for name in sys.argv[2:]:
            show(Path(name))
        return 0 if sys.argv[2:] else 2
    options = arguments()
    # An exception like any other, so that servers and processes are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    today = f"{datetime.now(UTC):%Y-%m-%d}"  # noqa: TID251 - a file's name
    path = options.out / f"{options.name or today}.json"

    def keep(results: dict[str, Any]) -> None:
        if not options.quick:
            driver.write(results, path)

    results = driver.measure(run_of(options), keep)
    failures = driver.errors(results)
    if options.quick:
        print(report(results))
    else:
        show(path)
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
