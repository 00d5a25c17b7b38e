"""One picture of a results file: how fast each system drains, tuned and with its defaults.

Drawn by hand, with colours and a transparent ground that can be read on white and on black.
"""

import statistics
from html import escape
from typing import Any

from benchmarks.report import title_of

WIDTH = 820
LEFT = 170
RIGHT = 110
TOP = 58
BAR = 13
GAP = 14

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
.head { font-weight: 600; font-size: 15px; fill: #24292f }
.own { font-weight: 600; fill: #24292f }
.tuned { fill: #8c959f } .default { fill: #8c959f; fill-opacity: .45 }
.tuned.own { fill: #2f81f7 } .default.own { fill: #2f81f7; fill-opacity: .5 }
.limit { fill: none; stroke: #8c959f; stroke-dasharray: 3 2 }
.axis { stroke: #8c959f; stroke-opacity: .6 }
@media (prefers-color-scheme: dark) { text { fill: #9da7b3 } .head, text.own { fill: #e6edf3 } }
""".strip()


def chart(results: dict[str, Any]) -> str:
    """Draw bars of the medians, with a line from the slowest round to the fastest."""
    tuned = results["workloads"].get("drain", {})
    default = results["workloads"].get("drain-default", {})
    measured = [name for name in tuned if rates(tuned[name])]
    if not measured:
        return ""
    limit = [name for name in measured if results["systems"][name]["limit"]]
    others = [name for name in measured if name not in limit]
    others.sort(key=lambda name: -statistics.median(rates(tuned[name])))
    names = limit + others
    widest = max(max(rates(found[name])) for found in (tuned, default) for name in names if rates(found.get(name, [])))
    scale = (WIDTH - LEFT - RIGHT) / widest
    height = TOP + len(names) * (2 * BAR + GAP) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        "<title>Jobs drained a second</title>",
        f"<style>{STYLE}</style>",
        '<text class="head" x="0" y="18">Jobs drained a second, 1 worker process</text>',
        '<text x="0" y="38">upper bar: tuned; lower bar: default settings; line: slowest to fastest round</text>',
    ]
    for number, name in enumerate(names):
        top = TOP + number * (2 * BAR + GAP)
        parts += group(results, name, top, scale, tuned=tuned[name], default=default.get(name, []))
    parts += [
        f'<line class="axis" x1="{LEFT}" y1="{TOP - 6}" x2="{LEFT}" y2="{height - 26}"/>',
        f'<text x="0" y="{height - 6}">{escape(footnote(results))}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def group(
    results: dict[str, Any],
    name: str,
    top: int,
    scale: float,
    *,
    tuned: list[dict[str, Any]],
    default: list[dict[str, Any]],
) -> list[str]:
    """One system's two bars."""
    own = " own" if name == "asyncq" else ""
    shown = escape(title_of(results, name))
    parts = [f'<text class="name{own}" x="{LEFT - 10}" y="{top + BAR + 5}" text-anchor="end">{shown}</text>']
    for kind, rounds, y in (("tuned", tuned, top), ("default", default, top + BAR)):
        found = rates(rounds)
        if not found:
            continue
        middle = statistics.median(found)
        width = max(middle * scale, 1.0)
        style = "limit" if results["systems"][name]["limit"] else kind + own
        low, high = (LEFT + value * scale for value in (min(found), max(found)))
        centre = y + BAR / 2
        parts += [
            f'<rect class="{style}" x="{LEFT}" y="{y + 0.5}" width="{width:.1f}" height="{BAR - 1}"/>',
            f'<line class="axis" x1="{low:.1f}" y1="{centre}" x2="{high:.1f}" y2="{centre}"/>',
            f'<text class="{own.strip()}" x="{max(LEFT + width, high) + 6:.1f}" y="{y + BAR - 2}">{middle:,.0f}</text>',
        ]
    return parts


def rates(rounds: list[dict[str, Any]]) -> list[float]:
    return [float(each["rate"]) for each in rounds if "rate" in each]


def footnote(results: dict[str, Any]) -> str:
    machine = results["machine"]
    return (
        f"{results['sizes']['jobs']:,} jobs that do nothing; PostgreSQL {results['postgresql']['version'].split()[0]},"
        f" fsync {results['postgresql']['settings']['fsync']}, {machine['cores']} cores shared with the server;"
        " systems on Redis are not durable per job"
    )
