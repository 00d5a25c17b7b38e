"""The benchmarks' own parts that need no server: what systems say of themselves, and what is made of results."""

from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.chart import chart
from benchmarks.environments import ORDER, descriptions
from benchmarks.report import report
from benchmarks.workloads import WORKLOADS


def results() -> dict[str, Any]:
    drained = [{"rate": 100.0, "client µs": 10.0}, {"rate": 300.0, "client µs": 20.0}, {"rate": 200.0}]
    systems: dict[str, dict[str, Any]] = {
        "asyncq": {"title": "asyncq", "limit": False, "default": {}, "tuned": {"loop": "uvloop"}, "versions": {}},
        "oban": {"title": "oban", "limit": False, "default": {}, "tuned": {}, "versions": {"oban": "0.7.0"}},
        "arq": {"title": "arq", "limit": False, "default": {}, "failed": "there is no redis-server"},
    }
    return {
        "measured": "2030-01-31",
        "took seconds": 90,
        "machine": {"processor": "a <fast> one", "cores": 2, "memory GiB": 24, "python": "3.11.7"},
        "postgresql": {"version": "15.18 (Debian)", "settings": {"fsync": "on"}},
        "redis": None,
        "rounds": 3,
        "sizes": {"jobs": 20_000, "limit": 30.0},
        "systems": systems,
        "workloads": {
            "drain": {"asyncq": drained, "oban": [{"rate": 50.0, "cut off": True}, {"error": "it broke"}]},
            "drain-default": {"asyncq": drained},
        },
    }


def test_every_system_says_how_it_is_measured() -> None:
    assert set(descriptions()) == set(ORDER)
    for description in descriptions().values():
        assert description.own or all("==" in each for each in description.requirements[:1])
        for settings in [description.default, *description.tuned]:
            assert settings["loop"] in ("asyncio", "uvloop")


def test_workloads_have_names_of_their_own() -> None:
    names = [workload.name for workload in WORKLOADS]
    assert len(set(names)) == len(names)


def test_the_table_shows_medians_ranges_ratios_and_failures() -> None:
    text = report(results())
    assert "| drain 20,000 jobs, 1 worker process, tuned; jobs/s | 200 (100 to 300) | 50, cut off (0.25x) |" in text
    assert "| CPU of the client, µs a job | 15.0 (10.0 to 20.0) | failed |" in text
    assert "* arq: not measured, there is no redis-server" in text


def test_the_chart_is_well_formed() -> None:
    drawn = chart(results())
    root = ET.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert "oban 0.7.0" in drawn
