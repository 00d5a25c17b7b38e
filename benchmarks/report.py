"""A results file as a Markdown table: medians, ranges, and what each is of asyncq's."""

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import Shown

OWN = "asyncq"


def table(results: dict[str, Any]) -> str:
    """Medians, and below each one the range; a system a column, a workload's figure a row."""
    systems = [name for name in results["systems"] if any(name in found for found in results["workloads"].values())]
    lines = [
        "| | " + " | ".join(title_of(results, name) for name in systems) + " |",
        "|---|" + "---:|" * len(systems),
    ]
    for shown, found in rows(results):
        cells = [cell(shown, found[name], found.get(OWN)) if name in found else "" for name in systems]
        if any(cells):
            lines.append(f"| {title(shown, results['sizes'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(results: dict[str, Any]) -> str:
    """The table, and what has to be known to read it."""
    machine, postgres = results["machine"], results["postgresql"]
    redis = f", Redis {results['redis']['version']}" if results.get("redis") else ""
    settings = ", ".join(f"{name} {value}" for name, value in postgres["settings"].items())
    measured = (
        f"Measured {results['measured']} in {results['took seconds'] // 60} minutes on {machine['cores']} cores"
        f" ({machine['processor']}, {machine['memory GiB']} GiB), Python {machine['python']}, PostgreSQL"
        f" {postgres['version']}{redis}; {settings}. Client and server share these cores."
    )
    read = (
        f"Medians of {results['rounds']} rounds in which the systems took turns (fewer for the longest workloads); in"
        " parentheses the lowest and the highest round, and the ratio to asyncq's median. *Cut off* marks a drain that"
        f" was not done within {results['sizes']['limit']:g} s: the rate is that of this time."
    )
    listed = "\n".join(settings_of(name, system) for name, system in results["systems"].items())
    return "\n\n".join([measured, read, table(results), "Settings:", listed]) + "\n"


def rows(results: dict[str, Any]) -> Iterator[tuple[Shown, dict[str, list[dict[str, Any]]]]]:
    """Every row and the rounds of each system, in the order of the workloads."""
    for workload in WORKLOADS:
        if found := results["workloads"].get(workload.name):
            for shown in workload.rows:
                yield shown, found


def values(shown: Shown, rounds: list[dict[str, Any]]) -> list[float]:
    return [float(each[shown.figure]) for each in rounds if shown.figure in each]


def cell(shown: Shown, rounds: list[dict[str, Any]], own: list[dict[str, Any]] | None) -> str:
    found = values(shown, rounds)
    if not found:
        return "failed" if any("error" in each for each in rounds) else ""
    middle = statistics.median(found)
    text = f"{middle:,.{shown.digits}f}"
    if shown.figure == "rate" and any(each.get("cut off") for each in rounds):
        text += ", cut off"
    notes: list[str] = []
    if len(found) > 1:
        notes.append(f"{min(found):,.{shown.digits}f} to {max(found):,.{shown.digits}f}")
    if own is not None and own is not rounds and shown.better == "more" and (ours := values(shown, own)):
        notes.append(f"{middle / statistics.median(ours):.2f}x")
    return text + (f" ({'; '.join(notes)})" if notes else "")


def title(shown: Shown, sizes: dict[str, Any]) -> str:
    told = {name: f"{value:,}" if isinstance(value, int) else f"{value:g}" for name, value in sizes.items()}
    return shown.title.format(**told)


def title_of(results: dict[str, Any], name: str) -> str:
    system = results["systems"][name]
    distribution = {"awa": "awa-pg"}.get(name, name)
    version = system.get("versions", {}).get(distribution)
    return f"{system['title']} {version}" if version else str(system["title"])


def settings_of(name: str, system: dict[str, Any]) -> str:
    if "failed" in system:
        return f"* {name}: not measured, {system['failed'].splitlines()[-1]}"

    def words(settings: dict[str, Any]) -> str:
        return ", ".join(f"{key} {value}" for key, value in settings.items()) or "none"

    return f"* {name}: tuned {words(system['tuned'])}; default {words(system['default'])}"
