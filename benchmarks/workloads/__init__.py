"""What is measured: each workload makes one round's figures of one system."""

from benchmarks.workloads.backlog import BACKLOG
from benchmarks.workloads.drain import DRAINS
from benchmarks.workloads.flat import FLAT
from benchmarks.workloads.idle import IDLE
from benchmarks.workloads.latency import LATENCY
from benchmarks.workloads.pinned import PIN, PINNED
from benchmarks.workloads.produce import PRODUCE
from benchmarks.workloads.workload import Workload
from benchmarks.workloads.writers import WRITERS

__all__ = ["WORKLOADS", "Workload"]

WORKLOADS: list[Workload] = [*DRAINS, *PRODUCE, LATENCY, BACKLOG, PIN, IDLE, *FLAT, PINNED, *WRITERS]
