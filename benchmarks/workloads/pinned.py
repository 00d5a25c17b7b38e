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
    edge: float | None = None,
    pinned: bool = False,
    past_library: bool = False,
    batch: int = 1_000,
) -> dict[str, Any]:
    """Work while the backlog is kept at a level, and give the rates of all intervals and what was left behind.

    With an edge, the first and the last so many seconds are also given by themselves, rates and costs.
    """
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
        spans = [limit] if edge is None else [edge, limit - 2 * edge, edge]
        rates: list[list[float]] = []
        costs = [stage.costs()]
        for span in spans:
            rates.append(stage.sampled(span, EVERY))
            costs.append(stage.costs())
        left = dead_rows(stage.connection(autocommit=True))
        stage.producer.answer(120)
        stage.stop()
    every = [rate for span in rates for rate in span]
    found = {"rates": every, **spent(every, costs[0], costs[-1]), "dead rows": left}
    if edge is not None:
        found |= {f"first {key}": value for key, value in spent(rates[0], costs[0], costs[1]).items()}
        found |= {f"last {key}": value for key, value in spent(rates[-1], costs[-2], costs[-1]).items()}
        if not found["first rate"]:
            raise SystemFailedError(f"no job was handled in the first {edge:g} s")
        found["ratio"] = found["last rate"] / found["first rate"]
    return found


def spent(rates: list[float], before: tuple[float, float], after: tuple[float, float]) -> dict[str, float]:
    """The mean rate of some intervals, and what a job cost in them."""
    ran = max(sum(rates) * EVERY, 1.0)
    client, server = ((end - start) / ran * 1e6 for start, end in zip(before, after, strict=True))
    return {"rate": statistics.fmean(rates), "client µs": client, "server µs": server, "both µs": client + server}


def dead_rows(conn: Any) -> int:
    row = conn.execute("select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables").fetchone()
    return int(row[0])


def pin(lab: Lab, contender: Contender) -> Figures:
    sizes = lab.sizes
    return steady(lab, contender, backlog=sizes.steady, limit=sizes.pin_seconds, edge=sizes.pin_edge, pinned=True)


def pinned(lab: Lab, contender: Contender) -> Figures:
    """The long form, beside a control run without the pin."""
    sizes = lab.sizes
    seconds = sizes.pinned_minutes * 60
    found: Figures = {}
    for name, is_pinned in (("control", False), ("pinned", True)):
        run = steady(lab, contender, backlog=sizes.steady, limit=seconds, edge=min(60.0, seconds / 3), pinned=is_pinned)
        count = max(1, round(10 / EVERY))
        rates = run.pop("rates")
        found |= {f"{name} {key}": value for key, value in run.items()}
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
        Shown("its rate in the last {pin_edge} s; jobs/s", "last rate"),
    ),
    stores=("postgresql",),
    most_rounds=1,
)

PINNED = Workload(
    "pinned",
    "pinned",
    pinned,
    (
        Shown("pinned for {pinned_minutes} minutes, first minute; jobs/s", "pinned first rate"),
        Shown("last minute; jobs/s", "pinned last rate"),
        Shown("last over first", "pinned ratio", digits=2),
        Shown("CPU of client + server in the first minute, µs a job", "pinned first both µs", digits=1, better="less"),
        Shown("CPU of client + server in the last minute, µs a job", "pinned last both µs", digits=1, better="less"),
        Shown("without the pin, first minute; jobs/s", "control first rate"),
        Shown("last minute; jobs/s", "control last rate"),
        Shown("last over first", "control ratio", digits=2),
        Shown("CPU of client + server in the first minute, µs a job", "control first both µs", digits=1, better="less"),
        Shown("CPU of client + server in the last minute, µs a job", "control last both µs", digits=1, better="less"),
        Shown("dead rows at the end, pinned", "pinned dead rows", better="neither"),
        Shown("dead rows at the end, without", "control dead rows", better="neither"),
    ),
    only=("asyncq",),
    most_rounds=1,
    by_default=False,
)
