"""The suite `mpi`: ranks on one kernel, in one machine, and in several by Vshmem and by TCP.

Measured are messages and collectives (`tests/mpi/programs/measure.c`), the HPC Challenge and
LAMMPS, as Debian has them, with the MPI that they were built with. The same four ranks in one, two
and four machines ask what paper 003 did (Han et al., The effect of multi-core on HPC applications
in virtualized systems), with sixteen ranks of NPB on two hosts. They wait alike everywhere, in two
ways, and over TCP those of one machine share its memory.
"""

from __future__ import annotations

import dataclasses

from vshmem_lab.model import ONE_WAY, Case, Contender, Wanted
from vshmem_lab.runners.mpi import WAITS
from vshmem_lab.suites.parts import faster, within

SUITE = "mpi"
ONE_KERNEL, ONE_MACHINE = "one kernel", "one machine"
VSHMEM, TCP = "Vshmem, {} machines", "TCP, {} machines"
SIZES = (8, 64, 512, 4096, 32768, 1 << 18, 1 << 20, 4 << 20)
COLLECTIVES = ("barrier", "bcast", "allreduce", "alltoall")
COLLECTIVE_SIZES = (8, 1024, 32768)
MIB = 1 << 20


def contender(program: str, words: tuple[str, ...], ranks: int, place: str) -> Contender:
    """A program with so many ranks, in a place."""
    name = f"MPI {program}, {ranks} ranks, {place}"
    return Contender(place, name, words, vshmem=place.startswith("Vshmem"))


def two_ranks(program: str, *words: str) -> tuple[Contender, ...]:
    """A rank for each processor of a small host."""
    places = (ONE_KERNEL, ONE_MACHINE, VSHMEM.format("two"), TCP.format("two"))
    return tuple(contender(program, words, 2, place) for place in places)


SPLIT = [means.format(count) for means in (VSHMEM, TCP) for count in ("two", "four")]


def pinned(program: str, *words: str) -> tuple[Contender, ...]:
    """The same in machines whose processors are bound to cores."""
    places = [f"{place}, pinned, {how}" for how in WAITS for place in (ONE_MACHINE, *SPLIT)]
    return tuple(contender(program, words, 4, place) for place in places)


def four_ranks(program: str, *words: str) -> tuple[Contender, ...]:
    """The paper's granularity: as many virtual processors in each place, and waiting alike.

    What an MPI's launcher alone does, which waits as it likes, stands beside, natively, too.
    """
    waiting = [f"{place}, {how}" for how in WAITS for place in (ONE_KERNEL, ONE_MACHINE, *SPLIT)]
    alone = [f"{place}, mpiexec alone" for place in (ONE_KERNEL, ONE_MACHINE)]
    found = [contender(program, words, 4, place) for place in (*waiting, *alone)]
    bars = set(alone)
    return tuple(dataclasses.replace(one, bar=one.name in bars) for one in found)


def message(name: str, what: str, unit: str, *wanted: Wanted, way: str = ONE_WAY) -> Case:
    """Messages between two ranks, by size."""
    contenders, rest = two_ranks("measure", what), {"unit": unit, "way": way, "wanted": wanted}
    return Case(SUITE, name, "2 ranks", contenders, SIZES, warm=False, **rest)


def collective(what: str) -> Case:
    """One of those that a job measures together."""
    words = (what, ",".join(COLLECTIVES), ",".join(map(str, COLLECTIVE_SIZES)))
    sizes = (0,) if what == "barrier" else COLLECTIVE_SIZES
    contenders = four_ranks("measure", *words)
    return Case(SUITE, what, "4 ranks", contenders, sizes, warm=False)


def hpcc(name: str, what: str, unit: str, way: str = "") -> Case:
    """One of what a run of the HPC Challenge measures."""
    contenders = two_ranks("hpcc", what)
    return Case(SUITE, f"HPCC {name}", "2 ranks", contenders, unit=unit, way=way, warm=False)


# So much may machines cost that share memory.
NEAR = within(1.1, ONE_MACHINE)

CASES = (
    message(
        "latency",
        "latency",
        "ns",
        within(1.1, ONE_MACHINE, 8),
        faster(200, TCP.format("two"), 8),
    ),
    message("bandwidth", "bandwidth", "MB/s", within(0.95, ONE_MACHINE, MIB)),
    message("two-way bandwidth", "two-way", "MB/s", way="both ways at once"),
    *(collective(what) for what in COLLECTIVES),
    hpcc("ping-pong latency", "latency", "ns", ONE_WAY),
    hpcc("ping-pong bandwidth", "bandwidth", "MB/s", ONE_WAY),
    hpcc("FFT", "fft", "Mflop/s"),
    hpcc("PTRANS", "ptrans", "MB/s"),
    hpcc("RandomAccess", "randomaccess", "Mupdates/s"),
    Case(SUITE, "LAMMPS", "2 ranks", two_ranks("lammps", "loop"), wanted=(NEAR,), warm=False),
    Case(
        SUITE,
        "LAMMPS, granularity",
        "4 ranks",
        four_ranks("lammps", "loop"),
        wanted=tuple(
            dataclasses.replace(within(1.1, f"{ONE_MACHINE}, {how}"), ours=how) for how in WAITS
        ),
        warm=False,
    ),
    Case(SUITE, "LAMMPS, granularity, pinned", "4 ranks", pinned("lammps", "loop"), warm=False),
)
