"""Turns of the suite `cores`, by `src/cores/team.sh`, which puts each process on a core."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from vshmem_lab import answers, builds, paths, priority
from vshmem_lab.model import Reading, Runner, Turn
from vshmem_lab.process import run
from vshmem_lab.runners import dwarfs, lines, mpi, mpi_programs
from vshmem_lab.runners.job import Figures, Job
from vshmem_lab.suites import cores as suite
from vshmem_lab.suites.parts import KERNEL, VSHMEM

TEAM = paths.LAB / "src" / "cores" / "team.sh"
LIMIT = 120.0
# In a command's words: the user whose calls are measured, and a key of this job's own.
USER, KEY = "@user@", "@key@"
MEASURE = "mpi-measure"
# By model: the suffix of a dwarf's program, the way in which it is started, and in what.
MODELS = {
    suite.SYSTEM_V: ("sysv", "processes", "kernel"),
    f"{suite.SYSTEM_V}, by hand": ("sysv", "processes", "kernel"),
    VSHMEM: ("sysv", "processes", "pool"),
    suite.BY_HAND: ("sysv", "processes", "pool"),
    suite.BY_LIBRARY: ("vshmem", "processes", "pool"),
    suite.OPENMP: ("openmp", "threads", "kernel"),
    suite.MPI: ("mpi", "ranks", "kernel"),
    suite.THROUGH: ("mpi", "ranks", "pool"),
}
CROWDS = {KERNEL: "kernel", VSHMEM: "pool"}


class Work:
    """A program by a model with so many processes; its words are without folders."""

    limit = LIMIT
    absent: Mapping[str, str] = {}
    goal = "all"  # of the Makefile
    way, place = "alone", "kernel"

    def __init__(self, model: str, count: int) -> None:
        self.model, self.count = model, count

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """The program and its words."""
        raise NotImplementedError

    def figures(self, said: str) -> Figures:
        """What it has measured."""
        raise NotImplementedError


class Crowd(Work):
    """ipcbench, which makes the processes itself."""

    def __init__(self, model: str, count: int, what: str) -> None:
        super().__init__(model, count)
        self.place, self._what = CROWDS[model], what

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """One measurement."""
        return ["ipcbench", "-t", str(seconds), USER, "crowd", f"{self._what},={self.count}"]

    def figures(self, said: str) -> Figures:
        """Nanoseconds of an operation of all."""
        found = lines.values(said)
        return {(self._what, 0): found[0].value} if found else {}


class Dwarf(Work):
    """A dwarf; an answer that is wrong fails."""

    def __init__(self, model: str, count: int, program: str) -> None:
        super().__init__(model, count)
        self._suffix, self.way, self.place = MODELS[model]
        self._program, self.goal = program, f"dwarfs-{self._suffix}"

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """The problems in turn."""
        plan = [word for turn in turns for word in (turn.contender.words[0], str(turn.size))]
        options = ["-k", KEY, "-p", str(self.count), "-t", str(seconds / dwarfs.PART)]
        return [f"{self._program}-{self._suffix}", *options, *plan]

    def figures(self, said: str) -> Figures:
        """Nanoseconds of a run."""
        found = dwarfs.parse(said)
        for what, size, _, answer in found:
            answers.check(what, size, self.count, answer)
        return {(what, size): ns for what, size, ns, _ in found}


class Operations(Work):
    """MPI's operations, all of them in one job."""

    def __init__(self, model: str, count: int) -> None:
        super().__init__(model, count)
        _, self.way, self.place = MODELS[model]

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """Whatever the turns are."""
        sizes = sorted({size for of in suite.OPERATIONS.values() for size in of if size})
        milliseconds = str(max(1, round(seconds * 1000 / dwarfs.PART)))
        return [MEASURE, ",".join(suite.OPERATIONS), ",".join(map(str, sizes)), milliseconds, "1"]

    def figures(self, said: str) -> Figures:
        """A line for each operation and size."""
        return mpi_programs.measured(said)


def work(program: str, model: str, count: int, what: str = "") -> Work:
    """The program of a runner."""
    if program == suite.CROWD:
        return Crowd(model, count, what)
    if program == suite.JOB:
        return Operations(model, count)
    return Dwarf(model, count, program)


class Here:
    """On this kernel."""

    def __init__(self, pool: Callable[[], dict[str, str]]) -> None:
        self._pool, self._keys = pool, itertools.count(0x46000000 | (os.getpid() & 0xFFF) << 12)

    def said(self, program: Work, argv: Sequence[str]) -> str:
        """What a job printed."""
        user = ["-u", str(builds.ORDINARY)] if os.geteuid() == 0 else []
        name, *words = expanded(argv, user, next(self._keys))
        path = str(paths.programs() / name)
        variables = {}
        if program.way == "ranks":
            kind = mpi_programs.mpi_of(path)
            variables |= {"MPI": kind, "MPIEXEC": mpi.launcher(kind)}
        if program.place == "pool":
            pool = self._pool()
            variables |= {"LIBRARY": pool["LD_PRELOAD"], "POOL": pool["VSHMEM_POOL"]}
            variables["VSHMEM"] = str(paths.command())
        line = [str(TEAM), str(program.count), program.way, program.place, path, *words]
        return run(priority.heavy(line), variables, program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with how many processors there were."""
        return seated(reading, len(os.sched_getaffinity(0)))


def seated(reading: Reading, processors: int) -> Reading:
    """The reading with how many processors there were for its processes."""
    return dataclasses.replace(reading, placement=f"{processors} processors")


def expanded(argv: Sequence[str], user: Sequence[str], key: int) -> list[str]:
    """A command's words with this user and this key."""
    found: list[str] = []
    for word in argv:
        found += user if word == USER else [f"{key:#x}" if word == KEY else word]
    return found


def build(found: Work) -> None:
    """Compiles a program. Raises Missing if it can't be had."""
    if isinstance(found, Operations):
        mpi_programs.compiled()
    else:
        paths.build_programs(found.goal)


class Cores:
    """A runner: a job of its program for the turns of a case; those of MPI for several cases."""

    most = 64

    def __init__(self, place: Here, program: str, model: str, count: int) -> None:
        self._place, self._make = place, functools.partial(work, program, model, count)
        self._jobs: dict[str, Job] = {}
        self._apart = program == suite.CROWD

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns of a contender."""
        what = turns[0].contender.words[0] if self._apart else ""
        if what not in self._jobs:
            made = self._make(what)
            build(made)
            self._jobs[what] = Job(self._place, made)
        return self._jobs[what].measure(turns, seconds)


def named(runner: str) -> tuple[str, str, int]:
    """Program, model and count of a runner."""
    program, _, rest = runner.removeprefix("cores: ").partition(" by ")
    model, _, count = rest.rpartition(", ")
    return program, model, int(count)


def programs() -> Iterator[tuple[str, str, int]]:
    """Program, model and count of each runner."""
    found = dict.fromkeys(
        (one.runner for case in suite.CASES for one in case.contenders),
    )
    return map(named, found)


def runners(pool: Callable[[], dict[str, str]]) -> dict[str, Callable[[], Runner]]:
    """How each is made."""
    place = Here(pool)
    return {suite.runner(*found): functools.partial(Cores, place, *found) for found in programs()}
