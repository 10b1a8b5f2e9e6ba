"""Turns of the suite `vsuite`: on this kernel, in a machine, and in one with something changed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator, Sequence

from vshmem_lab import paths, priority, topology
from vshmem_lab.environments import NATIVE
from vshmem_lab.model import Failed, Missing, Reading, Runner, Turn
from vshmem_lab.process import run
from vshmem_lab.runners.dwarfs import InMachines, Threads, parse
from vshmem_lab.runners.environments import FindMachines
from vshmem_lab.runners.machines import PATIENCE, Kind, Machines
from vshmem_lab.suites.vsuite import (
    DAEMON,
    OPENMP,
    PLACES,
    PROCESSORS,
    SLOW_CLOCK,
    SMALL_PAGES,
    STOCK,
    runner,
)

CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
SLOW = "acpi_pm"
LIMIT = 300

# What is changed in a machine, and what is to be said of that afterwards.
Change = Callable[[Machines], contextlib.AbstractContextManager[list[str]]]


def readings(said: str, turn: Turn) -> list[Reading]:
    """What a stock program's script said of a turn."""
    found = parse(said)
    if [line[:2] for line in found] != [(turn.contender.words[1], turn.size)]:
        raise Failed(f"stock.sh did not print what was asked for: {said.strip()}")
    return [Reading(ns) for _, _, ns, _ in found]


class Stock:
    """A stock program's parallel work, once a turn."""

    most = 1

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn, however long it takes."""
        (turn,) = turns
        program, what, count = turn.contender.words
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed.")
        script = str(paths.LAB / "src" / "vsuite" / "stock.sh")
        return self.seated(readings(self.said([script, what, str(turn.size), count]), turn))

    def said(self, argv: list[str]) -> str:
        """What the script printed."""
        raise NotImplementedError

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings with where it ran."""
        raise NotImplementedError


class StockHere(Stock):
    """On processors of this kernel."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = cpus

    def said(self, argv: list[str]) -> str:
        """What the script printed."""
        words = ["taskset", "-c", ",".join(map(str, self._cpus)), *argv]
        return run(priority.heavy(words), limit=LIMIT)

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings with the processors."""
        where = topology.placement(self._cpus) if len(self._cpus) > 1 else "one processor"
        return [dataclasses.replace(one, placement=where) for one in found]


class StockInMachine(Stock):
    """In a machine."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def said(self, argv: list[str]) -> str:
        """What the script printed."""
        words = (self._machines.names[0], "--", *argv)
        what = f"{argv[1]} in a machine"
        return self._machines.do("exec", *words, what=what, within=PATIENCE + LIMIT)

    def seated(self, found: list[Reading]) -> list[Reading]:
        """The readings with where the machine is."""
        return self._machines.where(found)


class Changed:
    """A runner in a machine, in which something is otherwise for the time of its turns."""

    def __init__(self, inner: Runner, machines: Machines, change: Change) -> None:
        self._inner, self._machines, self._change = inner, machines, change
        self.most = inner.most

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns."""
        with self._change(self._machines) as notes:
            found = self._inner.measure(turns, seconds)
        said = "".join(f", {note}" for note in notes)
        return [dataclasses.replace(one, placement=one.placement + said) for one in found]


def _as_root(machines: Machines, script: str) -> str:
    words = ("-u", "root", machines.names[0], "--", "sh", "-c", script)
    return machines.do("exec", *words, what="a setting of a machine")


@contextlib.contextmanager
def slow_clock(machines: Machines) -> Iterator[list[str]]:
    """Time is read by leaving the machine."""
    before = _as_root(machines, f"cat {CLOCK}").strip()
    _as_root(machines, f"echo {SLOW} >{CLOCK}")
    try:
        if _as_root(machines, f"cat {CLOCK}").strip() != SLOW:
            raise Missing(f"The machine has no clock source {SLOW}.")
        yield []
    finally:
        _as_root(machines, f"echo {before} >{CLOCK}")


@contextlib.contextmanager
def idle_daemon(machines: Machines) -> Iterator[list[str]]:
    """The machine's processors are kept from idling, as long as nobody else wants their cores."""
    notes: list[str] = []
    words = ("--vm", machines.names[0], "--daemon", "idle")
    with machines.start("doctor", *words) as daemon:
        output = daemon.stdout
        first = output.readline() if output else ""
        if "want a core" not in first:
            raise Missing(f"The idle daemon does not run: {first.strip() or 'it said nothing'}")
        yield notes
        daemon.terminate()
        daemon.wait(PATIENCE)
        rests = (output.read() if output else "").count("left to idle")
        notes.append(f"the daemon rested {rests} times" if rests else "the daemon never rested")


CHANGES: dict[str, Change] = {SLOW_CLOCK: slow_clock, DAEMON: idle_daemon}


class Places:
    """Makes the runners, each when it is first asked for."""

    def __init__(self, machines: FindMachines, pair: tuple[int, int]) -> None:
        self._find, self._pair = machines, pair

    def make(self, kind: str, place: str, count: int) -> Runner:
        """An application's runner in a place."""
        if place == NATIVE:
            return Threads(self._pair) if kind == OPENMP else StockHere(self._pair[:count])
        found = self._machines(place, count)
        inner = InMachines("openmp", found, "threads") if kind == OPENMP else StockInMachine(found)
        return Changed(inner, found, CHANGES[place]) if place in CHANGES else inner

    def _machines(self, place: str, count: int) -> Machines:
        if place != SMALL_PAGES:
            return self._find(1, count, None)
        before = (str(paths.programs() / "pages"), "small")
        return self._find(1, count, Kind("auto", before, "-vs"))


def runners(machines: FindMachines, pair: tuple[int, int]) -> dict[str, Callable[[], Runner]]:
    """How each is made."""
    make = Places(machines, pair).make
    return {
        runner(kind, place, count): functools.partial(make, kind, place, count)
        for kind in (OPENMP, STOCK)
        for place in PLACES
        for count in PROCESSORS
    }
