"""What processes cost, by the kernel's account: processor time and memory of a process and all that it started."""

import os
import time
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int) -> float:
    """Processor time of a process and its descendants, those that have ended included.

    A living process is asked by its own processor clock, which is exact; ended ones are in their parent's account, in
    ticks of 10 ms.
    """
    total = 0.0
    for pid in [root, *descendants(root)]:
        try:
            # The clock's number as clock_getcpuclockid(3) makes it on Linux.
            total += time.clock_gettime((~pid << 3) | 2)
            fields = stat(pid)
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        total += (int(fields[13]) + int(fields[14])) / TICKS
    return total


def descendants(root: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            try:
                parent = parent_of(int(entry.name))
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    wanted = [root]
    while wanted:
        below = children.get(wanted.pop(), [])
        found += below
        wanted += below
    return found


def parent_of(pid: int) -> int:
    return int(stat(pid)[1])


def stat(pid: int) -> list[str]:
    """The fields of /proc/…/stat after the command's name, which may hold anything: state is 0, the parent 1."""
    return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()


def memory_mib(pid: int, *, peak: bool = False) -> float:
    """Resident memory of a process, now or at its highest."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    return 0.0
