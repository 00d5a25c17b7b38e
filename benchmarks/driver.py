"""The run: environments and servers, a warm-up that also finds the tuned settings, and rounds of systems in turns.

A system that cannot be measured stays in the results, with the reason in the place of its figures.
"""

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.environments import Description, EnvironmentFailedError, descriptions, python_of, versions
from benchmarks.process import SystemFailedError, warn
from benchmarks.stage import Contender, Figures, Lab, Sizes
from benchmarks.workloads import WORKLOADS, Workload


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be measured."""

    systems: list[str]
    workloads: list[Workload]
    rounds: int
    sizes: Sizes
    dsn: str | None
    postgres: int | None
    environments: Path
    tune: bool


def chosen(names: list[str] | None) -> list[Workload]:
    """Workloads by their own or their group's name; those of a default run if none is named."""
    if names is None:
        return [workload for workload in WORKLOADS if workload.by_default]
    known = {workload.name for workload in WORKLOADS} | {workload.group for workload in WORKLOADS}
    if unknown := set(names) - known:
        raise SystemExit(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return [workload for workload in WORKLOADS if {workload.name, workload.group} & set(names)]


def measure(run: Run, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Do it all, and give what the results file holds; `keep` gets what there is after each workload."""
    began = time.monotonic()
    failed: dict[str, str] = {}
    with ExitStack() as open_:
        contenders = prepared(run, failed)
        wants_redis = any(contender.description.store == "redis" for contender in contenders)
        redis = open_.enter_context(servers.redis()) if wants_redis else None
        postgres = open_.enter_context(servers.postgres(run.dsn, run.postgres))
        lab = Lab(postgres, redis, run.sizes)
        open_.callback(lab.close)
        warn(f"PostgreSQL {postgres.version}; systems: {', '.join(each.name for each in contenders)}")
        for contender in list(contenders):
            try:
                warm_up(lab, contender, run)
            except Exception as error:  # noqa: BLE001 - one system's failure is no reason to lose the others' figures
                failed[contender.name] = reason(error)
                warn(f"{contender.name} failed: {error}")
                contenders.remove(contender)
        results: dict[str, Any] = {
            "measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",  # noqa: TID251 - a label, nothing is decided by it
            "took seconds": 0,
            "machine": machine(),
            "postgresql": {"version": postgres.version, "settings": postgres.settings()},
            "redis": {"version": redis.version} if redis else None,
            "rounds": run.rounds,
            "sizes": dataclasses.asdict(run.sizes),
            "systems": {name: said_of(name, contenders, failed) for name in run.systems},
            "workloads": {},
        }
        for workload in run.workloads:
            results["workloads"][workload.name] = rounds(lab, workload, contenders, run.rounds)
            results["took seconds"] = round(time.monotonic() - began)
            keep(results)
        return results


def prepared(run: Run, failed: dict[str, str]) -> list[Contender]:
    """Find or make the environments."""
    found: list[Contender] = []
    for name in run.systems:
        description = descriptions()[name]
        try:
            python = python_of(description, run.environments, warn)
            installed = versions(python)
        except (EnvironmentFailedError, OSError) as error:
            failed[name] = str(error)
            warn(f"{name} failed: {error}")
            continue
        found.append(Contender(description, python, description.tuned[0], installed))
    return found


def warm_up(lab: Lab, contender: Contender, run: Run) -> None:
    """Drain some jobs with the default settings and with each of the tuned ones, of which the fastest stay."""
    count = max(run.sizes.jobs // 4, 100)
    candidates = contender.description.tuned if run.tune else contender.description.tuned[:1]
    for settings in candidates:
        contender.tuned = settings
        with lab.stage(contender) as stage:
            stage.fill(count)
            found = stage.drain(count, run.sizes.limit / 2)
        contender.tried.append({"settings": settings, "rate": found["rate"]})
        warn(f"warm-up: {contender.name} {settings}: {found['rate']:,.0f} jobs/s")
    best = max(contender.tried, key=lambda tried: tried["rate"])
    contender.tuned = best["settings"]


def rounds(lab: Lab, workload: Workload, contenders: list[Contender], count: int) -> dict[str, list[Figures]]:
    """Let all systems take turns, each round beginning with another one."""
    fit = [contender for contender in contenders if workload.fits(contender)]
    found: dict[str, list[Figures]] = {contender.name: [] for contender in fit}
    for number in range(min(count, workload.most_rounds)):
        turn = number % max(len(fit), 1)
        for contender in fit[turn:] + fit[:turn]:
            began = time.monotonic()
            try:
                figures = workload.measure(lab, contender)
            except Exception as error:  # noqa: BLE001 - as in the warm-up
                figures = {"error": reason(error)}
            found[contender.name].append(figures)
            warn(f"{workload.name} {number + 1}: {contender.name} {brief(figures)} [{time.monotonic() - began:.1f} s]")
    return found


def reason(error: Exception) -> str:
    return str(error) if isinstance(error, SystemFailedError) else f"{type(error).__name__}: {error}"


def brief(figures: Figures) -> str:
    """A round in a line."""
    if "error" in figures:
        return f"FAILED: {figures['error']}"
    parts = [
        f"{name} {value:,.0f}" if abs(value) >= 100 else f"{name} {value:.3g}"
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return ", ".join(parts) + (" (cut off)" if figures.get("cut off") else "")


def errors(results: dict[str, Any]) -> list[str]:
    """Everything that failed, one line each."""
    found = [f"{name}: {system['failed']}" for name, system in results["systems"].items() if "failed" in system]
    for workload, systems in results["workloads"].items():
        for name, measured in systems.items():
            found += [f"{workload}: {name}: {each['error']}" for each in measured if "error" in each]
    return found


def said_of(name: str, contenders: list[Contender], failed: dict[str, str]) -> dict[str, Any]:
    description: Description = descriptions()[name]
    said: dict[str, Any] = {
        "title": description.title,
        "store": description.store,
        "limit": description.limit,
        "default": description.default,
    }
    if name in failed:
        return said | {"failed": failed[name]}
    contender = next(each for each in contenders if each.name == name)
    return said | {"tuned": contender.tuned, "tried": contender.tried, "versions": contender.versions}


def machine() -> dict[str, Any]:
    """What it was measured on, as far as it matters."""
    model = "unknown"
    memory = 0
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = round(int(line.split()[1]) / 1024**2)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory GiB": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
