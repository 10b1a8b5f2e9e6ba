"""What keeps a busy machine from disturbing a measurement: priority, where root may give it.

One process or a pair is measured at real-time priority (SCHED_RR): whatever else wants the
processor waits. Crowds measure the usual scheduler itself, and the threads of a virtual machine
need one another's work, so both keep the usual scheduler and only weigh more there. Machines whose
processors mostly sleep leave their other threads room, so they can have real-time priority, too.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

REAL_TIME = ("chrt", "--rr", "10")
HEAVY = ("nice", "-n", "-20")


@functools.cache
def allowed() -> bool:
    """Tries whether both can be had; `nice` only complains where it can't."""
    try:
        done = [
            subprocess.run([*prefix, "true"], capture_output=True) for prefix in (REAL_TIME, HEAVY)
        ]
    except FileNotFoundError:
        return False
    return all(d.returncode == 0 and not d.stderr for d in done)


def real_time(argv: list[str]) -> list[str]:
    """A command at real-time priority, if that can be had."""
    return [*REAL_TIME, *argv] if allowed() else argv


def heavy(argv: list[str]) -> list[str]:
    """A command with the most weight in the usual scheduler, if that can be had."""
    return [*HEAVY, *argv] if allowed() else argv


def make_heavy(pid: int) -> None:
    """The same for a process that runs in another session, and for its threads."""
    if not allowed() or os.getsid(pid) == os.getsid(0):
        return
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), -20)
    # Linux may weigh sessions against one another first (autogroups).
    autogroup = Path(f"/proc/{pid}/autogroup")
    if autogroup.exists():
        autogroup.write_text("-20")


def make_real_time(pid: int) -> None:
    """Real-time priority for a process that runs already, and for its threads."""
    if allowed():
        argv = ["chrt", "--all-tasks", "--rr", "--pid", "10", str(pid)]
        subprocess.run(argv, capture_output=True)


def make_usual(pid: int) -> None:
    """Takes that back."""
    if allowed():
        argv = ["chrt", "--all-tasks", "--other", "--pid", "0", str(pid)]
        subprocess.run(argv, capture_output=True)


def description() -> str:
    """For the head of a result."""
    if allowed():
        return (
            "SCHED_RR for measured processes, and for machines that wake each other; "
            "nice -20 for crowds of processes, and for machines else"
        )
    return "usual (root measures at real-time priority)"
