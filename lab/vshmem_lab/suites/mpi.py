"""The suite `mpi`: two ranks on one kernel, in one machine, and in two by Vshmem and by TCP.

The program is `tests/mpi/programs/measure.c`, with the MPI whose mpicc and mpiexec are on the PATH.
"""

from __future__ import annotations

from vshmem_lab.model import ONE_WAY, Case, Contender

SUITE = "mpi"
SIZES = tuple(1 << shift for shift in range(0, 23, 2))


def case(name: str, what: str, unit: str, way: str) -> Case:
    """One operation, by size."""
    contenders = (
        Contender("one kernel, the MPI's own", "MPI on one kernel", (what,)),
        Contender("one machine, the MPI's own", "MPI in one machine", (what,)),
        Contender("two machines, Vshmem", "MPI by Vshmem", (what,), vshmem=True),
        Contender("two machines, TCP", "MPI by TCP", (what,)),
    )
    return Case(SUITE, name, "ranks", contenders, SIZES, unit, way)


CASES = (
    case("latency", "latency", "ns", ONE_WAY),
    case("bandwidth", "bandwidth", "MB/s", ONE_WAY),
    case("two-way bandwidth", "two-way", "MB/s", "both ways at once"),
)
