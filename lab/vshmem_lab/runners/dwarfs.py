"""Turns of the dwarfs' programs: on one kernel, in one machine, and in two.

A contender's words are the dwarf, what of it, and the number of processes; then perhaps how its
set-up is timed: apart, or together with a run. An answer that is wrong fails its turn.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from vshmem_lab import answers, paths, priority, topology
from vshmem_lab.model import Failed, Missing, Reading, Runner, Turn
from vshmem_lab.process import finish, run, started
from vshmem_lab.runners.machines import PATIENCE, Machines
from vshmem_lab.runners.mpi import AS_ROOT, Find, crowded, launcher
from vshmem_lab.runners.mpi_programs import mpi_of
from vshmem_lab.runners.onekernel import Enclose, container

# WHAT SIZE NANOSECONDS ANSWER, with or without a machine's name before it.
LINE = re.compile(r"(?:^|\s)([a-z0-9-]+) (\d+) ([\d.e+]+) (\S+)$")
PART = 8  # of a turn's time for one problem; a run that takes longer is done once
LIMIT = 120

# What each model's threads and processes need to be as fast as the others.
THREADS = {"OMP_PROC_BIND": "true", "OMP_WAIT_POLICY": "active"}


PROCESSES = (2, 4)
SPREAD, SPREAD_RANKS = "processes of two machines", "ranks of two machines"
# Contender in machines, model of the program, and how it is started.
IN_MACHINES = (
    ("System V", "sysv", "processes"),
    ("Vshmem", "sysv", SPREAD),
    ("vshmem.h", "vshmem", SPREAD),
    ("OpenMP", "openmp", "threads"),
    ("MPI", "mpi", "ranks"),
    ("MPI of two", "mpi", SPREAD_RANKS),
)


def parse(said: str) -> list[tuple[str, int, float, float]]:
    """What, size, nanoseconds and answer of each line that is one."""
    found = (LINE.search(line.strip()) for line in said.splitlines())
    return [(m[1], int(m[2]), float(m[3]), float(m[4])) for m in found if m]


class Dwarf:
    """What all models share: one program, or its processes, computes the problems in turn."""

    most = 64
    model = ""

    def __init__(self) -> None:
        if self.model == "mpi" and shutil.which("mpicc") is None:
            raise Missing("There is no MPI: mpicc is not installed (libmpich-dev, mpich).")
        paths.build_programs(f"dwarfs-{self.model}")

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The turns; those in a row have one dwarf and one number of processes."""
        dwarf, _, count, *set_up = turns[0].contender.words
        if set_up and len(turns) > 1:  # a process is set up once
            return [reading for turn in turns for reading in self.measure([turn], seconds)]
        plan = [word for turn in turns for word in (turn.contender.words[1], str(turn.size))]
        key = f"{0x44000000 | os.getpid():#x}"
        timed = ["-s", *set_up] if set_up else ["-t", str(seconds / PART)]
        options = ["-k", key, "-p", count, *timed]
        program = str(paths.programs() / f"{dwarf}-{self.model}")
        within = LIMIT + 10 * seconds * len(turns)
        said = self.said([program, *options, *plan], int(count), within)
        found = parse(said)
        asked = [(turn.contender.words[1], turn.size) for turn in turns]
        if [line[:2] for line in found] != asked:
            raise Failed(f"{dwarf}-{self.model} did not print what was asked for: {said.strip()}")
        for what, size, _, answer in found:
            answers.check(what, size, int(count), answer)
        return self.seated([Reading(ns) for _, _, ns, _ in found], int(count))

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed, of so many processes or threads."""
        raise NotImplementedError

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where the processes sat."""
        raise NotImplementedError


class OneKernel(Dwarf):
    """On two processors of this kernel."""

    def __init__(self, model: str, pair: tuple[int, int]) -> None:
        self.model = model
        super().__init__()
        self._pair = pair

    def prepared(self, argv: list[str], cpus: Sequence[int]) -> list[str]:
        """The command on these processors, by the usual scheduler: processes may be more."""
        return priority.heavy(["taskset", "-c", ",".join(map(str, cpus)), *argv])

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where the processes sat."""
        where = f"{count} on {topology.placement(self._pair)}"
        return [dataclasses.replace(reading, placement=where) for reading in readings]


class Threads(OneKernel):
    """OpenMP."""

    def __init__(self, pair: tuple[int, int], enclose: Enclose = list) -> None:
        super().__init__("openmp", pair)
        self._enclose = enclose

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed."""
        return run(self._enclose(self.prepared(argv, self._pair)), THREADS, within)


class Processes(OneKernel):
    """Separate processes that share memory, perhaps each in a container of its own."""

    def __init__(
        self,
        model: str,
        extra: dict[str, str],
        pair: tuple[int, int],
        enclose: Enclose = list,
    ) -> None:
        super().__init__(model, pair)
        self._extra, self._enclose = extra, enclose

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the processes printed."""
        with ExitStack() as stack:
            all_of_them = []
            for i in range(count):
                line = self.prepared(self._enclose(argv), [self._pair[i % 2]])
                all_of_them.append(stack.enter_context(started(line, self._extra)))
            return "".join(finish(one, "a dwarf's process", within) for one in all_of_them)


def mpiexec(argv: list[str], count: int, program: str) -> list[str]:
    """The launcher's command line, of the MPI of a program; ranks may be more than processors."""
    mpi = mpi_of(program)
    more = ["--oversubscribe", "--bind-to", "none"] if mpi == "openmpi" else []
    return [launcher(mpi), *more, "-n", str(count), *argv]


class Ranks(OneKernel):
    """MPI's own shared memory."""

    def __init__(self, pair: tuple[int, int]) -> None:
        super().__init__("mpi", pair)

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the job printed."""
        # A rank's core is the list's element of its number; both MPIs name it by a variable.
        one, other = self._pair
        rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
        bound = f'[ $(({rank} % 2)) = 0 ] && c={one} || c={other}; exec taskset -c $c "$@"'
        line = mpiexec(["sh", "-c", bound, "sh", *argv], count, argv[0])
        return run(priority.heavy(line), AS_ROOT, within)


class InMachines(Dwarf):
    """In one machine with a processor for each, or in two that share them out."""

    def __init__(self, model: str, machines: Machines, means: str, enclose: Enclose = list) -> None:
        self.model = model
        super().__init__()
        self._machines, self._means, self._enclose = machines, means, enclose

    def said(self, argv: list[str], count: int, within: float) -> str:
        """What the program printed."""
        action, *words = self._line(argv, count)
        what = f"{argv[0].rsplit('/', 1)[-1]} in machines"
        return self._machines.do(action, *words, what=what, within=PATIENCE + within)

    def _line(self, argv: list[str], count: int) -> list[str]:
        if self._means == SPREAD:
            return ["run", "-n", str(count), "--", *argv]
        if self._means == SPREAD_RANKS:
            each = str(count // len(self._machines.names))
            ranks = ["--mpi", mpi_of(argv[0]), "-n", str(count), "--ppn", each]
            return ["mpirun", *ranks, "--", *argv]
        variables = AS_ROOT if self._means == "ranks" else THREADS
        options = [word for pair in variables.items() for word in ("--env", "=".join(pair))]
        if self._means == "ranks":
            argv = mpiexec(argv, count, argv[0])
        if self._means == "processes":
            # One that fails prints nothing, or the others wait for it until time is up.
            argv = ["sh", "-c", f'for i in $(seq {count}); do "$@" & done; wait', "sh", *argv]
        return ["exec", *options, self._machines.names[0], "--", *self._enclose(argv)]

    def seated(self, readings: Sequence[Reading], count: int) -> list[Reading]:
        """The readings with where the processes sat."""
        return [crowded(one, count) for one in self._machines.where(readings)]


def runners(
    machines: Find,
    pair: tuple[int, int],
    pool: Callable[[], dict[str, str]],
    enclosed: Callable[[], dict[str, str]],
) -> dict[str, Callable[[], Runner]]:
    """How each model is made: on one kernel, and in machines for each number of processes."""
    found: dict[str, Callable[[], Runner]] = {
        "dwarfs by System V": lambda: Processes("sysv", {}, pair),
        "dwarfs by Vshmem": lambda: Processes("sysv", pool(), pair),
        "dwarfs by vshmem.h": lambda: Processes("vshmem", pool(), pair),
        "dwarfs in containers": lambda: Processes("sysv", enclosed(), pair, container),
        "dwarfs by OpenMP": lambda: Threads(pair),
        "dwarfs by MPI": lambda: Ranks(pair),
    }
    for count in PROCESSES:
        for name, model, means in IN_MACHINES:
            shape = (2, count // 2) if means in (SPREAD, SPREAD_RANKS) else (1, count)
            found[f"dwarfs by {count} in machines, {name}"] = functools.partial(
                _in_machines, machines, shape, model, means
            )
    return found


def _in_machines(machines: Find, shape: tuple[int, int], model: str, means: str) -> InMachines:
    return InMachines(model, machines(*shape), means)
