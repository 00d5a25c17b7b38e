"""A transaction that stays open pins the horizon, and no row deleted since can be removed: does the rate hold?

The backlog is kept at a level by a producer in a process of its own, so the producer's work is in the machine in both
the pinned run and the one beside it without a pin.
"""

import statistics
from typing import Any

from benchmarks.process import SystemFailedError
from benchmarks.workloads.workload import Contender, Figures, Lab, Shown, Workload

EVERY = 0.2
"""Seconds between two looks at the counters; figures are means over many of these."""


def steady(
    lab: Lab,
    contender: Contender,
    *,
    backlog: int,
    limit: float,
    pinned: bool = False,
    past_library: bool = False,
    batch: int = 1_000,
) -> dict[str, Any]:
    """Work while the backlog is kept at a level, and give the rates of all intervals and what was left behind."""
    with lab.stage(contender) as stage:
        if past_library:
            stage.preload(backlog)
            stage.calm()
        else:
            stage.fill(backlog)
        if pinned:
            pin = stage.connection()
            pin.execute("begin isolation level repeatable read")
            pin.execute("select 1 from pg_class limit 1")
        stage.start()
        stage.until_handled(1, 60)
        stage.producer.send("feed", backlog=backlog, batch=min(batch, backlog // 2), limit=limit + 1, made=backlog)
        before = stage.costs()
        rates = stage.sampled(limit, EVERY)
        client, server = stage.costs()
        left = dead_rows(stage.connection(autocommit=True))
        stage.producer.answer(120)
        stage.stop()
    ran = max(statistics.fmean(rates) * limit, 1.0)
    return {
        "rates": rates,
        "rate": statistics.fmean(rates),
        "client µs": (client - before[0]) / ran * 1e6,
        "server µs": (server - before[1]) / ran * 1e6,
        "dead rows": left,
    }


def dead_rows(conn: Any) -> int:
    row = conn.execute("select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables").fetchone()
    return int(row[0])


def ends(rates: list[float], edge: float) -> tuple[float, float]:
    """The mean rates of the first and of the last `edge` seconds."""
    count = max(1, round(edge / EVERY))
    first, last = statistics.fmean(rates[:count]), statistics.fmean(rates[-count:])
    if not first:
        raise SystemFailedError(f"no job was handled in the first {edge:g} s")
    return first, last


def pin(lab: Lab, contender: Contender) -> Figures:
    sizes = lab.sizes
    found = steady(lab, contender, backlog=sizes.steady, limit=sizes.pin_seconds, pinned=True)
    first, last = ends(found["rates"], sizes.pin_edge)
    return found | {"first": first, "last": last, "ratio": last / first}


def pinned(lab: Lab, contender: Contender) -> Figures:
    """The long form, beside a control run without the pin."""
    sizes = lab.sizes
    seconds = sizes.pinned_minutes * 60
    found: Figures = {}
    for name, is_pinned in (("control", False), ("pinned", True)):
        run = steady(lab, contender, backlog=sizes.steady, limit=seconds, pinned=is_pinned)
        first, last = ends(run["rates"], min(60.0, seconds / 3))
        found |= {f"{name} {key}": value for key, value in run.items() if key != "rates"}
        found |= {f"{name} first": first, f"{name} last": last, f"{name} ratio": last / first}
        count = max(1, round(10 / EVERY))
        rates = run["rates"]
        found[f"{name} each 10 s"] = [
            round(statistics.fmean(rates[start : start + count])) for start in range(0, len(rates), count)
        ]
    return found


PIN = Workload(
    "pin",
    "pin",
    pin,
    (
        Shown(
            "pinned horizon {pin_seconds} s at a backlog of {steady}, last {pin_edge} s over first", "ratio", digits=2
        ),
        Shown("its rate in the last {pin_edge} s; jobs/s", "last"),
    ),
    stores=("postgresql",),
    most_rounds=1,
)

PINNED = Workload(
    "pinned",
    "pinned",
    pinned,
    (
        Shown("pinned for {pinned_minutes} minutes, first minute; jobs/s", "pinned first"),
        Shown("last minute; jobs/s", "pinned last"),
        Shown("last over first", "pinned ratio", digits=2),
        Shown("without the pin, first minute; jobs/s", "control first"),
        Shown("last minute; jobs/s", "control last"),
        Shown("last over first", "control ratio", digits=2),
        Shown("dead rows at the end, pinned", "pinned dead rows", better="neither"),
        Shown("dead rows at the end, without", "control dead rows", better="neither"),
    ),
    only=("asyncq",),
    most_rounds=1,
    by_default=False,
)
