"""What the suites' tables are written with."""

from __future__ import annotations

from vshmem_lab.model import Case, Contender, Wanted

FLOOR, KERNEL, VSHMEM = "bare", "kernel", "Vshmem"
SEGMENT = "segment and semaphores"
# Runners that an earlier build has, too.
EARLIER = ("ipcbench, Vshmem", "channel, Vshmem", "program, Vshmem")


def faster(times: float, than: str = KERNEL, size: int = 0) -> Wanted:
    """Vshmem takes at most the other's time divided by `times`."""
    return Wanted(of=than, factor=1 / times, size=size)


def within(times: float, of: str, size: int = 0) -> Wanted:
    """Vshmem takes at most `times` the time of the other, or reaches so much of its rate."""
    return Wanted(of=of, factor=times, size=size)


def ipcbench(name: str, command: str, where: str = "", **rest) -> Contender:
    """A contender on one kernel; `where` is the rest of its runner's name."""
    return Contender(name, f"ipcbench{where}", tuple(command.split()), **rest)


def floor(command: str, name: str = FLOOR) -> Contender:
    """What the hardware gives."""
    return ipcbench(name, command, floor=True)


def vshmem(command: str, name: str = VSHMEM, where: str = ", Vshmem", **rest) -> Contender:
    """The same program under the interposer."""
    return ipcbench(name, command, where, vshmem=True, **rest)


BEFORE = "Vshmem before"


def with_before(case: Case) -> Case:
    """The case with an earlier build of Vshmem beside the present one."""
    ours = next((c for c in case.contenders if c.runner in EARLIER), None)
    if ours is None:
        return case
    before = Contender(BEFORE, f"{ours.runner} before", ours.words, line=ours.line)
    return Case(**{**vars(case), "contenders": (*case.contenders, before)})
