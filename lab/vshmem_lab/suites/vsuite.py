"""The suite `vsuite`: parallel applications natively, in a machine, and in one with each remedy.

Paper 001 (Song, Chen, Zang, Characterizing the performance and scalability of many-core
applications on virtualized platforms) found four bottlenecks of its VSuite in machines, and a
remedy for each. The machine here has all four bottlenecks: a clock that is read by leaving it,
small pages, processors that may run on any core, and that halt when they idle. Each remedy takes
one of them away, and the last machine has none. The idle daemon needs the fast clock, by which it
sees whether its core is shared, so it comes on top of that, as in the paper's figures 9 and 10.
"""

from __future__ import annotations

import os

from vshmem_lab.environments import NATIVE
from vshmem_lab.model import Case, Contender

SUITE = "vsuite"
# Remedies, by the paper's names.
CLOCK, IDLE, BOUND, PAGES = "vtime", "idle", "cm", "iTLB"
GUEST, ALL = "guest", "guest, all remedies"
REMEDIES: dict[str, frozenset[str]] = {
    GUEST: frozenset(),
    f"guest, {CLOCK}": frozenset({CLOCK}),
    f"guest, {CLOCK} and {IDLE}": frozenset({CLOCK, IDLE}),
    f"guest, {BOUND}": frozenset({BOUND}),
    f"guest, {PAGES}": frozenset({PAGES}),
    ALL: frozenset({CLOCK, IDLE, BOUND, PAGES}),
}
PLACES = (NATIVE, *REMEDIES)
OPENMP, DEDUP, STOCK = "OpenMP", "OpenMP and zlib", "stock programs"


def counts(available: int) -> tuple[int, ...]:
    """Processors of a machine: 1, 2, 4, ... and all that there are."""
    powers = (1 << i for i in range(available.bit_length()))
    return tuple(sorted({count for count in powers if count <= available} | {available}))


PROCESSORS = counts(len(os.sched_getaffinity(0)))


def runner(kind: str, place: str, processors: int) -> str:
    """A runner's name."""
    return f"vsuite by {kind} in {place}, {processors}"


def application(
    name: str, kind: str, words: tuple[str, str], size: int, of: str, unit: str = "ns"
) -> tuple[Case, ...]:
    """An application by as many threads or processes as there are processors."""
    return tuple(
        Case(
            SUITE,
            name,
            f"{count} processor{'s' if count > 1 else ''}",
            tuple(
                Contender(
                    place, runner(kind, place, count), (*words, str(count)), base=place == GUEST
                )
                for place in PLACES
            ),
            (size,),
            counts=of,
            unit=unit,
            warm=False,
        )
        for count in PROCESSORS
    )


# By the paper's names of its applications. A run takes a second or more of two processors natively.
CASES = (
    *application("gmake", STOCK, ("make", "make"), 16, "files"),
    *application("dbench", STOCK, ("dbench", "dbench"), 5, "seconds", "MB/s"),
    *application("histogram", OPENMP, ("histogram", "histogram"), 2_000_000_000, "pixels"),
    *application("wordcount", OPENMP, ("wordcount", "wordcount"), 200_000_000, "words"),
    *application("linear regression", OPENMP, ("regression", "regression"), 2 * 10**9, "points"),
    *application("compress", STOCK, ("zstd", "compress"), 320, "MiB"),
    *application("XML-validation", STOCK, ("xmllint", "validate"), 50, "files"),
    *application("dedup", DEDUP, ("dedup", "dedup"), 64 * 1024, "KiB"),
    *application("streamcluster", OPENMP, ("kmeans", "kmeans"), 16_000_000, "points"),
)
