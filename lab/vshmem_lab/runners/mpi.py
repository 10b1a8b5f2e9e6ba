"""Turns of MPI programs: on one kernel, in one machine, and between machines."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Sequence

from vshmem_lab import topology
from vshmem_lab.model import Reading, Runner
from vshmem_lab.process import run
from vshmem_lab.runners.job import Job, Place
from vshmem_lab.runners.machines import Machines
from vshmem_lab.runners.mpi_programs import PROGRAMS, Program
from vshmem_lab.runners.onekernel import Enclose

# Open MPI's launcher asks root for these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launcher(mpi: str) -> str:
    """The mpiexec of an MPI, as Debian calls it, or the only one."""
    return shutil.which(f"mpiexec.{mpi}") or "mpiexec"


class OneKernel:
    """Two ranks on one kernel, by the MPI's own shared memory."""

    def __init__(self, pair: tuple[int, int], enclose: Enclose = list) -> None:
        self._pair, self._enclose = pair, enclose

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        # A rank's core is the list's element of its number; both MPIs name it by a variable.
        one, other = self._pair
        rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
        bound = f'[ "{rank}" = 0 ] && c={one} || c={other}; exec taskset -c $c "$@"'
        line = [launcher(program.mpi), "-n", "2", "sh", "-c", bound, "sh", *argv]
        return run(self._enclose(line), AS_ROOT, program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        return dataclasses.replace(reading, placement=topology.placement(self._pair))


class OneMachine:
    """A rank on each processor of a machine, by the MPI's own shared memory."""

    def __init__(self, machines: Machines, ranks: int, enclose: Enclose = list) -> None:
        self._machines, self._ranks, self._enclose = machines, ranks, enclose

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        allowed = [word for pair in AS_ROOT.items() for word in ("--env", "=".join(pair))]
        job = self._enclose([launcher(program.mpi), "-n", str(self._ranks), *argv])
        line = [*allowed, self._machines.names[0], "--", *job]
        what = "mpiexec in a machine"
        return self._machines.do("exec", *line, what=what, within=program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        (found,) = self._machines.where([reading])
        return crowded(found, self._ranks)


class Between:
    """Ranks in several machines, by `vshmem mpirun`: by Vshmem, or TCP between the same ones."""

    def __init__(self, machines: Machines, ranks: int, tcp: bool) -> None:
        self._machines, self._ranks = machines, ranks
        self._options = ["--env", "UCX_TLS=tcp,self"] if tcp else []

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        each = self._ranks // len(self._machines.names)
        ranks = ["--mpi", program.mpi, "-n", str(self._ranks), "--ppn", str(each)]
        line = [*self._options, *ranks, "--", *argv]
        return self._machines.do("mpirun", *line, what="vshmem mpirun", within=program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        (found,) = self._machines.where([reading])
        return crowded(found, self._ranks)


def crowded(reading: Reading, ranks: int) -> Reading:
    """The reading, with that its ranks had to share processors if they had to."""
    there = len(os.sched_getaffinity(0))
    if ranks <= there:
        return reading
    shared = f"{reading.placement} ({ranks} virtual processors on {there} real ones)"
    return dataclasses.replace(reading, placement=shared)


# Machines by their number and that of their processors.
Find = Callable[[int, int], Machines]


def runners(machines: Find, pair: tuple[int, int]) -> dict[str, Callable[[], Runner]]:
    """How each program in each place is made."""
    places: dict[str, Callable[[], Place]] = {
        "2 ranks, one kernel": lambda: OneKernel(pair),
        "2 ranks, one machine": lambda: OneMachine(machines(1, 2), 2),
        "4 ranks, one machine": lambda: OneMachine(machines(1, 4), 4),
    }
    for ranks, count, cpus, number in ((2, 2, 1, "two"), (4, 2, 2, "two"), (4, 4, 1, "four")):
        for means in ("Vshmem", "TCP"):
            places[f"{ranks} ranks, {means}, {number} machines"] = functools.partial(
                _between, machines, (count, cpus), ranks, means == "TCP"
            )
    return {
        f"MPI {name}, {where}": functools.partial(_job, place, program)
        for name, program in PROGRAMS.items()
        for where, place in places.items()
    }


def _between(machines: Find, shape: tuple[int, int], ranks: int, tcp: bool) -> Between:
    return Between(machines(*shape), ranks, tcp)


def _job(place: Callable[[], Place], program: type[Program]) -> Job:
    # The program first: machines need not boot for one that is missing.
    found = program()
    return Job(place(), found)
