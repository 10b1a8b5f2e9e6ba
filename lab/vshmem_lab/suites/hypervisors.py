"""The suite `hypervisors`: HPC Challenge and OpenMP natively, in a container, and in machines.

Paper 002 (Younge, Architectural principles and experimentation of distributed high performance
virtual clusters, chapter 3) ran HPC Challenge and SPEC OMP twenty times natively and in a guest of
Xen, KVM and VirtualBox that had all of a node, and ranked these. The dwarfs by OpenMP stand in for
SPEC OMP, which is not free. The table of features, the ranks, and what the paper has of both, come
with the report.
"""

from __future__ import annotations

from vshmem_lab.environments import (
    EMULATED,
    KVM,
    NATIVE,
    OPENMP,
    PLACES,
    PROBLEMS,
    SMALL,
    SMALL_PROBLEMS,
    TCG,
    hpcc,
    named,
)
from vshmem_lab.model import ONE_WAY, Case, Contender

SUITE = "hypervisors"
# By HPL, the only figure whose numbers are in the text: Gflop/s of eight cores.
PAPER = {NATIVE: "73,500 Mflop/s", KVM: "51,800 Mflop/s (KVM)"}


def places(program: str, words: tuple[str, ...], emulated: bool = True) -> tuple[Contender, ...]:
    """The environments with a program."""
    return tuple(
        Contender(
            f"{place}, {pages}",
            named(program, place, pages),
            words,
            base=pages == SMALL and place in (NATIVE, TCG),
        )
        for place, kinds in PLACES.items()
        for pages in kinds
        if emulated or place not in EMULATED
    )


def challenge(name: str, what: str, unit: str, way: str = "") -> tuple[Case, ...]:
    """One of what a run of the HPC Challenge measures, for each size of problems."""
    papers = {f"{place}, {SMALL}": text for place, text in PAPER.items()} if what == "hpl" else {}
    return tuple(
        Case(
            SUITE,
            name,
            environment,
            places(hpcc(size), (what,), environment == SMALL_PROBLEMS),
            unit=unit,
            way=way,
            warm=False,
            papers=papers,
        )
        for environment, size in PROBLEMS.items()
    )


def dwarf(name: str, words: tuple[str, str], size: int, counts: str) -> Case:
    """A dwarf by two threads."""
    found, title = places(OPENMP, (*words, "2")), f"{OPENMP}: {name}"
    return Case(SUITE, title, "2 threads", found, (size,), counts=counts, warm=False)


CASES = (
    *challenge("HPL", "hpl", "Mflop/s"),
    *challenge("DGEMM", "dgemm", "Mflop/s"),
    *challenge("STREAM triad", "stream", "MB/s"),
    *challenge("PTRANS", "ptrans", "MB/s"),
    *challenge("RandomAccess, MPI", "randomaccess", "Mupdates/s"),
    *challenge("RandomAccess, each rank", "randomaccess, each", "Mupdates/s"),
    *challenge("FFT, one rank", "fft, one", "Mflop/s"),
    *challenge("FFT, each rank", "fft, each", "Mflop/s"),
    *challenge("FFT, MPI", "fft", "Mflop/s"),
    *(
        case
        for what, unit in (("bandwidth", "MB/s"), ("latency", "ns"))
        for which in (", least", "", ", most")
        for case in challenge(f"ping-pong {what}{which}", f"{what}{which}", unit, ONE_WAY)
    ),
    dwarf("dot product", ("blas-double", "dot"), 1_000_000, "rows"),
    dwarf("matrix by vector", ("blas-double", "vector"), 1000, "rows"),
    dwarf("matrix by matrix", ("blas-double", "matrix"), 100, "rows"),
    dwarf("Laplace by Jacobi, 1,000 iterations", ("laplace", "laplace"), 100, "points a side"),
    dwarf("pi by Simpson's rule", ("pi", "pi"), 100_000, "intervals"),
    dwarf("molecular dynamics, 100 steps", ("md", "3d-100"), 50, "particles"),
)
