"""Turns of the suite `vsuite`: on this kernel, and in machines with and without remedies."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vshmem_lab import paths, priority, topology
from vshmem_lab.environments import NATIVE
from vshmem_lab.model import Failed, Missing, Reading, Runner, Turn
from vshmem_lab.process import run
from vshmem_lab.runners.dwarfs import InMachines, Threads, parse
from vshmem_lab.runners.environments import FindMachines
from vshmem_lab.runners.machines import PATIENCE, Kind, Machines
from vshmem_lab.suites.vsuite import (
    BOUND,
    CLOCK,
    DEDUP,
    IDLE,
    OPENMP,
    PAGES,
    PLACES,
    PROCESSORS,
    REMEDIES,
    STOCK,
    runner,
)

SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
SLOW = "acpi_pm"
LIMIT = 900
MEMORY = 1024  # MiB of a machine, for inputs and what is made of them; and for each processor
EACH = 512
SCRIPTS = paths.LAB / "src" / "vsuite"
PROFILE = re.compile(r"(?:^|\s)profile \d+ (.*)$", re.MULTILINE)

# What is changed in a machine, and what is to be said of that afterwards.
Change = Callable[[Machines], contextlib.AbstractContextManager[list[str]]]


def profiled(argv: Sequence[str]) -> list[str]:
    """A command whose processors' time is told as well."""
    return [str(SCRIPTS / "profile.sh"), *argv]


def with_profile(found: list[Reading], said: str) -> list[Reading]:
    """The readings of one program with its profile."""
    told = PROFILE.findall(said)
    return [dataclasses.replace(one, profile=told[-1]) for one in found] if told else found


def readings(said: str, turn: Turn) -> list[Reading]:
    """What a stock program's script said of a turn."""
    found = parse(said)
    if [line[:2] for line in found] != [(turn.contender.words[1], turn.size)]:
        raise Failed(f"stock.sh did not print what was asked for: {said.strip()}")
    return with_profile([Reading(value) for _, _, value, _ in found], said)


class Stock:
    """A stock program's parallel work, once a turn."""

    most = 1

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn, however long it takes."""
        (turn,) = turns
        program, what, count = turn.contender.words
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed.")
        argv = [str(SCRIPTS / "stock.sh"), what, str(turn.size), count]
        if what == "make":
            paths.build_programs("project")
            argv.append(str(paths.programs() / "project"))
        return self.seated(readings(self.said(argv), turn))

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
        return [dataclasses.replace(one, placement=seat(self._cpus)) for one in found]


def seat(cpus: Sequence[int]) -> str:
    """Where something ran, in words."""
    if len(cpus) == 2:
        return topology.placement((cpus[0], cpus[1]))
    return "one processor" if len(cpus) == 1 else f"{len(cpus)} processors"


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


class ThreadsHere(Threads):
    """OpenMP on processors of this kernel, with a profile."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        super().__init__(cpus[:2], profiled)
        self._cpus, self._said = cpus, ""

    def prepared(self, argv: list[str], cpus: Sequence[int]) -> list[str]:
        """The command on all of them."""
        return super().prepared(argv, self._cpus)

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed."""
        self._said = super().said(argv, count, within + LIMIT)
        return program_lines(self._said)

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where they ran."""
        found = [dataclasses.replace(one, placement=seat(self._cpus)) for one in readings]
        return with_profile(found, self._said)


class ThreadsInMachine(InMachines):
    """OpenMP in a machine, with a profile."""

    def __init__(self, machines: Machines) -> None:
        super().__init__("openmp", machines, "threads", profiled)
        self._said = ""

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed."""
        self._said = super().said(argv, count, within + LIMIT)
        return program_lines(self._said)

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where they ran."""
        return with_profile(super().seated(readings, count), self._said)


def program_lines(said: str) -> str:
    """What was printed, without the profile."""
    return "".join(line for line in said.splitlines(keepends=True) if not PROFILE.search(line))


class Changed:
    """A runner in a machine, in which something is otherwise for the time of its turns."""

    def __init__(self, inner: Runner, machines: Machines, changes: Sequence[Change]) -> None:
        self._inner, self._machines, self._changes = inner, machines, changes
        self.most = inner.most

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns."""
        with contextlib.ExitStack() as stack:
            notes = [stack.enter_context(change(self._machines)) for change in self._changes]
            found = self._inner.measure(turns, seconds)
        said = "".join(f", {note}" for of in notes for note in of)
        return [dataclasses.replace(one, placement=one.placement + said) for one in found]


def _as_root(machines: Machines, name: str, script: str) -> str:
    words = ("-u", "root", name, "--", "sh", "-c", script)
    return machines.do("exec", *words, what="a setting of a machine")


@contextlib.contextmanager
def slow_clock(machines: Machines) -> Iterator[list[str]]:
    """Time is read by leaving the machine."""
    before: dict[str, str] = {}
    try:
        for name in machines.names:
            said = _as_root(machines, name, f"cat {SOURCE}; echo {SLOW} >{SOURCE}")
            before[name] = said.split()[0]
            if _as_root(machines, name, f"cat {SOURCE}").strip() != SLOW:
                raise Missing(f"The machine has no clock source {SLOW}.")
        yield []
    finally:
        for name, clock in before.items():
            _as_root(machines, name, f"echo {clock} >{SOURCE}")


def processors(pid: int) -> list[int]:
    """The threads of a QEMU that are its virtual processors, in their order."""
    found = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        name = Path(f"/proc/{pid}/task/{thread}/comm").read_text()
        number = re.match(r"CPU (\d+)/", name)
        if number:
            found[int(number[1])] = int(thread)
    return [found[number] for number in sorted(found)]


@contextlib.contextmanager
def unbound(machines: Machines) -> Iterator[list[str]]:
    """Virtual processors may run on any core."""
    threads = [thread for pid in machines.pids() for thread in processors(pid)]
    before = [os.sched_getaffinity(thread) for thread in threads]
    for thread in threads:
        os.sched_setaffinity(thread, os.sched_getaffinity(0))
    try:
        yield ["not bound"]
    finally:
        for thread, cores in zip(threads, before, strict=True):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cores)


@contextlib.contextmanager
def idle_daemon(machines: Machines) -> Iterator[list[str]]:
    """The machine's processors are kept from idling, as long as nobody else wants their cores."""
    notes: list[str] = []
    words = ("--vm", ",".join(machines.names), "--daemon", "idle")
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


def changes(remedies: frozenset[str]) -> list[Change]:
    """What a machine of `vshmem up` needs, so that it has these remedies only."""
    found: list[Change] = []
    found += [] if BOUND in remedies else [unbound]
    found += [] if CLOCK in remedies else [slow_clock]
    found += [idle_daemon] if IDLE in remedies else []
    return found


class Places:
    """Makes the runners, each when it is first asked for."""

    def __init__(self, machines: FindMachines, pair: tuple[int, int]) -> None:
        self._find, self._pair = machines, pair

    def make(self, kind: str, place: str, count: int) -> Runner:
        """An application's runner in a place."""
        if kind == DEDUP:
            paths.build_programs("dedup")
        if place == NATIVE:
            cpus = self._cpus(count)
            return StockHere(cpus) if kind == STOCK else ThreadsHere(cpus)
        remedies = REMEDIES[place]
        found = self._machines(remedies, count)
        inner = StockInMachine(found) if kind == STOCK else ThreadsInMachine(found)
        return Changed(inner, found, changes(remedies))

    def _cpus(self, count: int) -> tuple[int, ...]:
        usable = tuple(sorted(os.sched_getaffinity(0)))
        return self._pair[:count] if count <= len(self._pair) else usable[:count]

    def _machines(self, remedies: frozenset[str], count: int) -> Machines:
        memory = MEMORY + EACH * count
        if PAGES in remedies:
            return self._find(1, count, Kind("auto", suffix="-v", memory=memory))
        before = (str(paths.programs() / "pages"), "small")
        return self._find(1, count, Kind("auto", before, "-vs", memory))


def runners(machines: FindMachines, pair: tuple[int, int]) -> dict[str, Callable[[], Runner]]:
    """How each is made."""
    make = Places(machines, pair).make
    return {
        runner(kind, place, count): functools.partial(make, kind, place, count)
        for kind in (OPENMP, DEDUP, STOCK)
        for place in PLACES
        for count in PROCESSORS
    }
