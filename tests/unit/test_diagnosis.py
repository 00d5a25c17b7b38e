"""What is judged as well, as worth a warning, and as a fault: where the limits are."""

from collections.abc import Sequence

import pytest

from asyncq import diagnosis
from asyncq.diagnosis import Finding, Holder, Index, Level, Server, Table

SERVER = Server(
    version=180_001,
    read_only=False,
    fsync=True,
    synchronous_commit=True,
    autovacuum=True,
    track_counts=True,
    connections=10,
    most_connections=100,
    notify_usage=0.0,
    now=0.0,
)
TABLE = Table(vacuumed=True, live=10, dead=99_000, vacuum_seconds=40.0, size=2**20)
INDEXES = [Index(name, valid=True, size=2**20) for name in diagnosis.INDEXES]
HUGE = [INDEXES[0]._replace(size=2**30), *INDEXES[1:]]
OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


@pytest.mark.parametrize(
    ("found", "level", "says"),
    [
        (diagnosis.server(SERVER), OK, "PostgreSQL 18.1, 10 connections."),
        (diagnosis.server(SERVER._replace(version=110_005)), FAIL, "PostgreSQL 11 is too old"),
        (diagnosis.server(SERVER._replace(autovacuum=False)), FAIL, "autovacuum is switched off"),
        (diagnosis.server(SERVER._replace(track_counts=False)), FAIL, "autovacuum is switched off"),
        (diagnosis.server(SERVER._replace(fsync=False)), WARN, "fsync is off"),
        (diagnosis.server(SERVER._replace(connections=90)), OK, "90"),
        (diagnosis.server(SERVER._replace(connections=91)), WARN, "91 of 100 connections are taken"),
        (diagnosis.table(TABLE), OK, "10 live and 99,000 dead rows, 1 MiB, vacuumed 40 s ago."),
        (diagnosis.table(TABLE._replace(dead=100_001, vacuum_seconds=None)), WARN, "vacuumed never, as far"),
        (diagnosis.table(TABLE._replace(dead=400_000, live=80_000)), OK, "400,000 dead"),
        (diagnosis.indexes(INDEXES, 0), OK, "All are there, 4 MiB."),
        (diagnosis.indexes(HUGE, 1_000), WARN, "1,024 MiB for 1,000 rows"),
        (diagnosis.indexes(HUGE, 5_000_000), OK, "MiB"),
        (diagnosis.horizon([]), OK, "began 0 s ago"),
        (diagnosis.horizon([Holder("session", "7", 299.0, 5, "x")]), OK, "began 4 min ago"),
        (
            diagnosis.horizon([Holder("session", "7", 300.0, 5, "x")]),
            WARN,
            "session 7 keeps deleted rows, and has been",
        ),
        (diagnosis.horizon([Holder("prepared transaction", "7", 3600.0, 5, "x")]), FAIL, "for 60 min (x)"),
        (diagnosis.horizon([Holder("replication slot", "s", None, 99_999, "x")]), OK, ""),
        (diagnosis.horizon([Holder("replication slot", "s", None, 100_000, "x")]), WARN, "for 100,000 transactions"),
        (diagnosis.notifications(0.002, 0.0, pooled=False), OK, "2.0 ms"),
        (diagnosis.notifications(0.3, 0.0, pooled=False), WARN, "300 ms"),
        (diagnosis.notifications(None, 0.0, pooled=False), WARN, "None arrive on this connection"),
        (diagnosis.notifications(0.002, 0.2, pooled=False), WARN, "20% full"),
        (diagnosis.notifications(0.002, 0.5, pooled=False), FAIL, "50% full"),
        (diagnosis.clock(-2.0), OK, "2.00 s"),
        (diagnosis.clock(2.1), WARN, "2.10 s"),
        (diagnosis.claims([("q", 1_000, 2.0)]), OK, "1,000 pages"),
        (diagnosis.claims([("q", 1_001, 2.0)]), WARN, "1,001 pages"),
    ],
)
def test_limits(found: Sequence[Finding], level: Level, says: str) -> None:
    [finding] = found
    assert (finding.level, says in finding.text) == (level, True), finding
    assert (finding.advice is None) == (level is OK)
