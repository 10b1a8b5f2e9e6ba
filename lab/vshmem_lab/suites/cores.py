"""The suite `cores`: 4, 8 and 16 processes on one kernel, each on a core of its own.

Crowds on one semaphore, set or queue, barriers and reductions, the dwarfs, and ranks of MPI by the
MPI's own memory and by Vshmem. Where there are fewer cores, processes share them, as rows say. A
larger machine needs nothing installed: `vshmem-lab carry` makes one file of all of it, which runs
there for nine minutes and leaves one file of results.
"""

from __future__ import annotations

import dataclasses

from vshmem_lab.model import Case, Contender
from vshmem_lab.suites.parts import KERNEL, VSHMEM, within

SUITE = "cores"
COUNTS = (4, 8, 16)
SYSTEM_V, OPENMP, MPI = "System V", "OpenMP", "MPI"
BY_LIBRARY, BY_HAND = f"{VSHMEM}, vshmem.h", f"{VSHMEM}, by hand"
THROUGH = f"{MPI} through {VSHMEM}"
CROWD, MEET, JOB = "crowd", "meet", "MPI's operations"
CROWDS = {
    "mutex": "mutex",
    "undo": "mutex, SEM_UNDO",
    "set": "two of a set at once",
    "queue": "64 B queue",
    "ring": "token ring",
}
# Dwarf, what of it, its name, sizes, and what these count.
DWARFS = (
    ("blas-double", "dot", "dot product", (10_000, 1_000_000), "rows"),
    ("blas-double", "matrix", "matrix by matrix", (50, 200), "rows"),
    ("laplace", "laplace", "Laplace by Jacobi, 1,000 iterations", (50, 200), "points a side"),
    ("pi", "pi", "pi by Simpson's rule", (1000, 1_000_000), "intervals"),
    ("md", "3d-100", "molecular dynamics, 3 dimensions, 100 steps", (50, 200), "particles"),
)
# What a job of MPI measures together: between its first and last rank, and of all.
OPERATIONS = {
    "latency": (8, 1024, 32768),
    "bandwidth": (8, 1024, 32768),
    "barrier": (0,),
    "bcast": (8, 1024, 32768),
    "allreduce": (8, 1024, 32768),
    "alltoall": (8, 1024, 32768),
}


def runner(program: str, model: str, count: int) -> str:
    """A runner's name."""
    return f"cores: {program} by {model}, {count}"


def contender(name: str, program: str, count: int, *words: str) -> Contender:
    """A model with a program."""
    ours = name.startswith(VSHMEM) or name == THROUGH
    return Contender(name, runner(program, name, count), words, vshmem=ours)


def _case(name: str, count: int, found: tuple[Contender, ...], sizes=(0,), **rest) -> Case:
    return Case(SUITE, name, f"{count} processes", found, sizes, warm=False, **rest)


def crowd(what: str, count: int) -> Case:
    """All want the same."""
    found = tuple(contender(name, CROWD, count, what) for name in (KERNEL, VSHMEM))
    factor = 1.3 if what == "ring" else 1
    return _case(CROWDS[what], count, found, wanted=(within(factor, KERNEL),))


def meeting(what: str, count: int) -> Case:
    """Barriers and reductions."""
    names = (BY_LIBRARY, BY_HAND, f"{SYSTEM_V}, by hand", OPENMP, MPI)
    found = tuple(contender(name, MEET, count, what) for name in names)
    wanted = tuple(dataclasses.replace(within(1.1, of), ours="vshmem.h") for of in (BY_HAND, MPI))
    return _case(f"1,000 times {what}", count, found, (1000,), counts="times", wanted=wanted)


def dwarf(program: str, what: str, name: str, sizes: tuple[int, ...], of: str, count: int) -> Case:
    """A dwarf by each model."""
    models = (VSHMEM, SYSTEM_V, OPENMP, MPI)
    found = tuple(contender(model, program, count, what) for model in models)
    return _case(name, count, found, sizes, counts=of)


def operation(what: str, count: int) -> Case:
    """Of MPI."""
    found = tuple(contender(name, JOB, count, what) for name in (THROUGH, MPI))
    unit = "MB/s" if what == "bandwidth" else "ns"
    return _case(f"MPI's {what}", count, found, OPERATIONS[what], unit=unit)


CASES = tuple(
    case
    for count in COUNTS
    for case in (
        *(crowd(what, count) for what in CROWDS),
        *(meeting(what, count) for what in ("barrier", "reduction")),
        *(dwarf(*of, count) for of in DWARFS),
        *(operation(what, count) for what in OPERATIONS),
    )
)
