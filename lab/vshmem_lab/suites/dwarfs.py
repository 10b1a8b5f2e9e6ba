"""The suite `dwarfs`: programs after paper 004's by MPI, OpenMP, System V, also between machines.

Paper 004: BLAS 1 to 3 by rows, Laplace by Jacobi with 1000 iterations, pi by Simpson's rule,
molecular dynamics by velocity Verlet. All models share the arithmetic and the compiler's flags, and
have to give the same answer. What is timed is a run, without the start of processes: OpenMP's
threads are there already, MPI is initialised, segments are attached. Other cases time that, too:
apart, and together with one run, as the paper's times have it in them (hence its Vshmem behind
System V in the smallest problems).
"""

from __future__ import annotations

import dataclasses

from vshmem_lab.model import Case, Contender
from vshmem_lab.suites.parts import VSHMEM, within

SUITE = "dwarfs"
NATIVE, GUESTS = "native", "guest-guest"
SYSTEM_V, OPENMP, MPI = "System V", "OpenMP", "MPI"
ATOMIC = "OpenMP, atomic by hand"  # else by its reduction
APART, TOGETHER = "set-up and tear-down", "with set-up and tear-down"
# By execution time, on a Pentium D. The papers' figures have no numbers that could be read.
ORDER = {SYSTEM_V: "1st, with Vshmem", VSHMEM: "1st, with System V", OPENMP: "3rd", MPI: "4th"}
LAPLACE = {SYSTEM_V: "2nd, with Vshmem", VSHMEM: "2nd, with System V", OPENMP: "1st", MPI: "4th"}
MD = {SYSTEM_V: "1st", VSHMEM: "2nd up to 35 particles, then as 1st", OPENMP: "3rd"}
PI = {SYSTEM_V: "1st", VSHMEM: "2nd by 10 intervals, then as 1st", OPENMP: "3rd", MPI: "4th"}


def contenders(words: tuple[str, ...], where: str) -> tuple[Contender, ...]:
    """The models, on one kernel or in machines; of Laplace OpenMP in two ways."""
    by_hand = (words[0], f"{words[1]}-atomic", *words[2:])
    openmp = "dwarfs by OpenMP" if where == NATIVE else f"dwarfs by {words[2]} in machines, OpenMP"
    others = (Contender(ATOMIC, openmp, by_hand),) if words[1] == "laplace" else ()
    return (*models(words, where), *others)


def models(words: tuple[str, ...], where: str) -> tuple[Contender, ...]:
    """Each once."""
    if where == NATIVE:
        return (
            Contender(VSHMEM, "dwarfs by Vshmem", words, vshmem=True),
            Contender(f"{VSHMEM}, a container each", "dwarfs in containers", words, vshmem=True),
            Contender(SYSTEM_V, "dwarfs by System V", words),
            Contender(OPENMP, "dwarfs by OpenMP", words),
            Contender(MPI, "dwarfs by MPI", words),
        )
    inside = f"dwarfs by {words[2]} in machines, "
    return (
        Contender(VSHMEM, f"{inside}Vshmem", words, vshmem=True),
        Contender(SYSTEM_V, f"{inside}System V", words),
        Contender(OPENMP, f"{inside}OpenMP", words),
        Contender(MPI, f"{inside}MPI", words),
        Contender("MPI, two machines, Vshmem", f"{inside}MPI of two", words),
    )


def dwarf(
    name: str,
    words: tuple[str, str],
    sizes: tuple[int, ...],
    counts: str,
    papers: dict[str, str],
    *places: tuple[str, int],
) -> tuple[Case, ...]:
    """A dwarf in some places, by so many processes."""
    return tuple(
        Case(
            SUITE,
            f"{name}, {processes} processes",
            where,
            contenders((*words, str(processes)), where),
            # Emulated, a run takes ten times as long.
            sizes[:-1] if where == GUESTS else sizes,
            counts=counts,
            warm=False,
            papers=papers,
        )
        for where, processes in places
    )


def set_up(
    name: str,
    words: tuple[str, str],
    sizes: tuple[int, ...],
    counts: str,
    papers: dict[str, str],
) -> tuple[Case, ...]:
    """What set-up takes of a dwarf by two processes, on one kernel and in machines."""
    return tuple(
        Case(
            SUITE,
            f"{name}, 2 processes, {what}",
            where,
            contenders((*words, "2", how), where),
            sizes if where == NATIVE else sizes[:1],
            counts=counts,
            warm=False,
            papers=papers if how == "together" else {},
        )
        for where in (NATIVE, GUESTS)
        for how, what in (("apart", APART), ("together", TOGETHER))
    )


def meeting(what: str, where: str, processes: int) -> Case:
    """A thousand barriers or reductions by hand, by vshmem.h, and of the other models."""
    words = ("meet", what, str(processes))
    inside = "dwarfs by " if where == NATIVE else f"dwarfs by {processes} in machines, "
    found = (
        Contender(f"{VSHMEM}, vshmem.h", f"{inside}vshmem.h", words, vshmem=True),
        Contender(f"{VSHMEM}, by hand", f"{inside}Vshmem", words, vshmem=True),
        Contender(f"{SYSTEM_V}, by hand", f"{inside}System V", words),
        Contender(OPENMP, f"{inside}OpenMP", words),
        Contender(MPI, f"{inside}MPI", words),
    )
    name = f"1,000 times {what}, {processes} processes"
    # As fast as by hand, and as an MPI.
    wanted = tuple(
        dataclasses.replace(within(1.1, of), ours="vshmem.h") for of in (f"{VSHMEM}, by hand", MPI)
    )
    return Case(SUITE, name, where, found, (1000,), counts="times", warm=False, wanted=wanted)


TWO, FOUR, MACHINES = (NATIVE, 2), (NATIVE, 4), (GUESTS, 2)
# The papers have 1 to 50.
PARTICLES = (1, 5, 10, 20, 30, 35, 40, 50)
LEVELS = (
    ("dot product", "dot", (100, 10_000, 1_000_000)),
    ("matrix by vector", "vector", (10, 100, 1000)),
    ("matrix by matrix", "matrix", (10, 50, 100, 200)),
)

CASES = (
    *(
        case
        for name, what, sizes in LEVELS
        for precision, places in (("double", (TWO, FOUR, MACHINES)), ("float", (TWO,)))
        for case in dwarf(
            f"{name}, {precision}", (f"blas-{precision}", what), sizes, "rows", ORDER, *places
        )
    ),
    *dwarf(
        "Laplace by Jacobi, 1,000 iterations",
        ("laplace", "laplace"),
        (10, 50, 100, 200),
        "points a side",
        LAPLACE,
        *(TWO, FOUR, MACHINES),
    ),
    *dwarf(
        "pi by Simpson's rule",
        ("pi", "pi"),
        (10, 1000, 100_000, 1_000_000),
        "intervals",
        ORDER,
        *(TWO, FOUR, MACHINES),
    ),
    *(
        case
        for what, places in (
            ("2d-10", (TWO,)),
            ("2d-100", (TWO,)),
            ("3d-10", (TWO,)),
            ("3d-100", (TWO, FOUR, MACHINES)),
        )
        for case in dwarf(
            f"molecular dynamics, {what[0]} dimensions, {what[3:]} steps",
            ("md", what),
            (*PARTICLES, 200),
            "particles",
            MD,
            *places,
        )
    ),
    *set_up(
        "Laplace by Jacobi, 1,000 iterations",
        ("laplace", "laplace"),
        (10, 100),
        "points a side",
        LAPLACE,
    ),
    *set_up("pi by Simpson's rule", ("pi", "pi"), (10, 1000, 100_000), "intervals", PI),
    *(
        case
        for what in ("2d-100", "3d-100")
        for case in set_up(
            f"molecular dynamics, {what[0]} dimensions, {what[3:]} steps",
            ("md", what),
            (1, 10, 35, 50),
            "particles",
            MD,
        )
    ),
    *(
        meeting(what, *place)
        for what in ("barrier", "reduction")
        for place in (TWO, FOUR, MACHINES)
    ),
)
