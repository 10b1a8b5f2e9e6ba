"""Turns of MPI programs: on one kernel, in one machine, and between machines.

What is compared has to wait alike: a rank that spins keeps a processor from the one that it waits
for, where ranks are more than processors. So all places have both, by the settings of `WAITS`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Sequence

from vshmem_lab import paths, topology
from vshmem_lab.model import Reading, Runner
from vshmem_lab.process import run
from vshmem_lab.runners.job import Job, Place
from vshmem_lab.runners.machines import Kind, Machines
from vshmem_lab.runners.mpi_programs import PROGRAMS, Program
from vshmem_lab.runners.onekernel import Enclose

# Open MPI's launcher asks root for these.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


SPIN, SLEEP = "ranks spin", "ranks sleep"
# For any MPI and for UCX beside `vshmem mpirun`, which would choose by itself.
WAITS: dict[str, dict[str, str]] = {
    SPIN: {"OMPI_MCA_mpi_yield_when_idle": "0", "VSHMEM_UCX_YIELD": "no"},
    SLEEP: {"OMPI_MCA_mpi_yield_when_idle": "1", "VSHMEM_UCX_YIELD": "sleep"},
}
# Over TCP ranks of one machine still have its memory, as its user would let them.
BY_TCP = {"UCX_TLS": "tcp,posix,self"}


def options(variables: dict[str, str]) -> list[str]:
    """Of `vshmem mpirun` and `exec`."""
    return [word for pair in variables.items() for word in ("--env", "=".join(pair))]


def launcher(mpi: str) -> str:
    """The mpiexec of an MPI, as Debian calls it, or the only one."""
    return shutil.which(f"mpiexec.{mpi}") or "mpiexec"


class OneKernel:
    """Ranks on one kernel, by the MPI's own shared memory and as it waits."""

    def __init__(self, pair: tuple[int, int], enclose: Enclose = list, ranks: int = 2) -> None:
        self._pair, self._enclose, self._ranks = pair, enclose, ranks

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        # A rank's core is the list's element of its number; both MPIs name it by a variable.
        one, other = self._pair
        rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}"
        bound = f'[ $(({rank} % 2)) = 0 ] && c={one} || c={other}; exec taskset -c $c "$@"'
        more = ["--oversubscribe"] if program.mpi == "openmpi" and self._ranks > 2 else []
        count = [*more, "-n", str(self._ranks)]
        line = [launcher(program.mpi), *count, "sh", "-c", bound, "sh", *argv]
        return run(self._enclose(line), AS_ROOT, program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        where = topology.placement(self._pair)
        return dataclasses.replace(reading, placement=where)


class Local:
    """Ranks on one kernel, by `vshmem mpirun` through a pool, so that they wait as others do."""

    def __init__(
        self, pair: tuple[int, int], pool: dict[str, str], ranks: int, variables: dict[str, str]
    ) -> None:
        self._pair, self._ranks, self._variables = pair, ranks, variables
        self._pool = pool["VSHMEM_POOL"]

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        job = [str(paths.command()), "mpirun", "--local", *options(self._variables)]
        job += ["--mpi", program.mpi, "-n", str(self._ranks), "--", *argv]
        cpus = ",".join(map(str, self._pair))
        variables = {**AS_ROOT, "VSHMEM_POOL": self._pool}
        return run(["taskset", "-c", cpus, *job], variables, program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        return dataclasses.replace(reading, placement=topology.placement(self._pair))


class OneMachine:
    """A rank on each processor of a machine, by the MPI's own shared memory."""

    def __init__(self, machines: Machines, ranks: int, enclose: Enclose = list) -> None:
        self._machines, self._ranks, self._enclose = machines, ranks, enclose

    def said(self, program: Program, argv: Sequence[str]) -> str:
        """What a job printed there."""
        allowed = options(AS_ROOT)
        job = self._enclose([launcher(program.mpi), "-n", str(self._ranks), *argv])
        line = [*allowed, self._machines.names[0], "--", *job]
        what = "mpiexec in a machine"
        return self._machines.do("exec", *line, what=what, within=program.limit)

    def seated(self, reading: Reading) -> Reading:
        """The reading with where the ranks sat."""
        (found,) = self._machines.where([reading])
        return crowded(found, self._ranks)


class Between:
    """Ranks in machines, by `vshmem mpirun`: by Vshmem, or TCP between the same ones."""

    def __init__(self, machines: Machines, ranks: int, variables: dict[str, str]) -> None:
        self._machines, self._ranks = machines, ranks
        self._options = options(variables)

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


# Machines by their number and that of their processors, and perhaps their kind.
Find = Callable[..., Machines]


# Machines of the granularity: by how many, and with how many processors each.
PINNED = Kind(suffix="-pinned", pinned=True)
SPLIT = {"one machine": (1, 4), "two machines": (2, 2), "four machines": (4, 1)}


def four_ranks(
    machines: Find, pair: tuple[int, int], pool: Callable[[], dict[str, str]]
) -> dict[str, Callable[[], Place]]:
    """Four ranks in each place, waiting in each way; and as an MPI alone has them wait."""
    places: dict[str, Callable[[], Place]] = {
        "one kernel, mpiexec alone": lambda: OneKernel(pair, ranks=4),
        "one machine, mpiexec alone": lambda: OneMachine(machines(1, 4), 4),
    }
    for waiting, variables in WAITS.items():
        places[f"one kernel, {waiting}"] = functools.partial(_local, pair, pool, 4, variables)
        for where, shape in SPLIT.items():
            many = shape[0] > 1
            places[f"{'Vshmem, ' if many else ''}{where}, {waiting}"] = functools.partial(
                _between, machines, shape, 4, variables
            )
            if many:
                places[f"TCP, {where}, {waiting}"] = functools.partial(
                    _between, machines, shape, 4, variables | BY_TCP
                )
            for means in ("Vshmem, ", "TCP, ") if many else ("",):
                by = variables | BY_TCP if means == "TCP, " else variables
                places[f"{means}{where}, pinned, {waiting}"] = functools.partial(
                    _between, machines, (*shape, PINNED), 4, by
                )
    return {f"4 ranks, {where}": place for where, place in places.items()}


def runners(
    machines: Find, pair: tuple[int, int], pool: Callable[[], dict[str, str]]
) -> dict[str, Callable[[], Runner]]:
    """How each program in each place is made."""
    places: dict[str, Callable[[], Place]] = {
        "2 ranks, one kernel": lambda: OneKernel(pair),
        "2 ranks, one machine": lambda: OneMachine(machines(1, 2), 2),
        **four_ranks(machines, pair, pool),
    }
    for means, variables in (("Vshmem", {}), ("TCP", BY_TCP)):
        places[f"2 ranks, {means}, two machines"] = functools.partial(
            _between, machines, (2, 1), 2, variables
        )
    return {
        f"MPI {name}, {where}": functools.partial(_job, place, program)
        for name, program in PROGRAMS.items()
        for where, place in places.items()
    }


def _between(machines: Find, shape: tuple, ranks: int, variables: dict[str, str]) -> Between:
    return Between(machines(*shape), ranks, variables)


def _local(
    pair: tuple[int, int],
    pool: Callable[[], dict[str, str]],
    ranks: int,
    variables: dict[str, str],
) -> Local:
    return Local(pair, pool(), ranks, variables)


def _job(place: Callable[[], Place], program: type[Program]) -> Job:
    # The program first: machines need not boot for one that is missing.
    found = program()
    return Job(place(), found)
