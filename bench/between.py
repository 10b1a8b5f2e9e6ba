"""The rows between two machines: System V against the bare memory and against TCP."""

from __future__ import annotations

from cases import Wanted, faster, within
from machines import Machines
from pong import Measurement
from results import Result

# Method, size, name, and what is wanted. The floor is two words of a segment that lies in the
# memory both machines map; what the kernel offers between machines is TCP.
ROWS: tuple[tuple[str, int, str, Wanted | None], ...] = (
    ("semaphore", 8, "machines: semaphore ping-pong, floor bare", within(2.5, "floor")),
    ("semaphore", 8, "machines: semaphore ping-pong, kernel TCP 8 B", faster(300)),
    ("segment", 1024, "machines: 1 KiB by segment and semaphores", None),
    ("queue", 8, "machines: 8 B by queue", None),
    ("queue", 1024, "machines: 1 KiB by queue", None),
)


# Both sides asleep, each time; without what they hold their answers back. The floor is two ioctls
# of vshmem.ko, VSHMEM_WAIT and VSHMEM_RING, on words of a segment.
WOKEN = "machines: semaphore ping-pong, both asleep, floor doorbell"


def plan(rounds: int) -> list[str]:
    """pingpong's arguments: all methods, in turn, so often."""
    once = ["bare", "8"]
    for method, size in dict.fromkeys((row[0], row[1]) for row in ROWS):
        once += [method, str(size)]
    return once * rounds


def network_plan(rounds: int) -> list[str]:
    """netpong's arguments."""
    sizes = dict.fromkeys(row[1] for row in ROWS)
    return [word for size in sizes for word in ("tcp", str(size))] * rounds


def times(found: list[Measurement], method: str, size: int) -> list[float]:
    """All rounds of one method."""
    return [m.ns for m in found if m.method == method and m.size == size]


def measure(rounds: int, seconds: float) -> list[Result]:
    """Boots two machines and measures all rows."""
    with Machines() as machines:
        found = machines.pingpong(seconds, plan(rounds))
        woken = machines.wakeup(seconds * 10, rounds)
        network = machines.netpong(seconds, network_plan(min(rounds, 3)))
    rows = []
    for method, size, name, wanted in ROWS:
        row = Result(name, "ns", wanted)
        row.samples["floor"] = times(found, "bare", 8)
        row.samples["kernel"] = times(network, "tcp", size)
        row.samples["vshmem"] = times(found, method, size)
        rows.append(row)
    if woken:
        row = Result(WOKEN, "ns", within(1.5, "floor"))
        row.samples["floor"] = times(woken, "bell", 8)
        row.samples["vshmem"] = times(woken, "woken", 8)
        rows.append(row)
    return rows
