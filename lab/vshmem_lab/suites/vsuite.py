"""The suite `vsuite`: parallel applications natively, in a machine, and with one thing changed.

Paper 001 (Song, Chen, Zang, Characterizing the performance and scalability of many-core
applications on virtualized platforms) found four bottlenecks of its VSuite in machines, and cured
each. A machine of `vshmem up` has most cures already, so here two of them are taken away, one at a
time: the fast clock (vtime), and huge pages (iTLB). The cure that it lacks, the idle process, comes
as `vshmem doctor --daemon idle`. The third bottleneck (cache sharing) is the host scheduler's:
processors of all these machines are bound.
"""

from __future__ import annotations

from vshmem_lab.environments import NATIVE
from vshmem_lab.model import Case, Contender

SUITE = "vsuite"
MACHINE = "machine"
SLOW_CLOCK, SMALL_PAGES = "machine, slow clock", "machine, small pages"
DAEMON = "machine, idle daemon"
PLACES = (NATIVE, MACHINE, SLOW_CLOCK, SMALL_PAGES, DAEMON)
PROCESSORS = (1, 2)
# What the paper's cures gained, over its programs; idle processes in hardware-assisted machines.
PAPER = {
    SLOW_CLOCK: "vtime: 1.09 to 1.44 times",
    SMALL_PAGES: "iTLB: 7.8 and 16.6 %",
    DAEMON: "idle: 0.97 to 2.48 times",
}
OPENMP, STOCK = "OpenMP", "stock programs"


def runner(kind: str, place: str, processors: int) -> str:
    """A runner's name."""
    return f"vsuite by {kind} in {place}, {processors}"


def contenders(kind: str, words: tuple[str, str], count: int) -> tuple[Contender, ...]:
    """The places, each with so many processors."""
    return tuple(
        Contender(place, runner(kind, place, count), (*words, str(count)), base=place == MACHINE)
        for place in PLACES
    )


def application(
    name: str, kind: str, words: tuple[str, str], size: int, counts: str
) -> tuple[Case, ...]:
    """An application by as many threads or processes as there are processors."""
    return tuple(
        Case(
            SUITE,
            name,
            f"{count} processor{'s' if count > 1 else ''}",
            contenders(kind, words, count),
            (size,),
            counts=counts,
            warm=False,
            papers=PAPER,
        )
        for count in PROCESSORS
    )


CASES = (
    *application("make", STOCK, ("make", "make"), 2, "programs"),
    *application("compress (zstd -T)", STOCK, ("zstd", "compress"), 16, "MiB"),
    *application("validate XML (xmllint)", STOCK, ("xmllint", "validate"), 8, "files"),
    *application("histogram", OPENMP, ("histogram", "histogram"), 1_000_000, "pixels"),
    *application("word count", OPENMP, ("wordcount", "wordcount"), 100_000, "words"),
    *application("linear regression", OPENMP, ("regression", "regression"), 1_000_000, "points"),
    *application("k-means", OPENMP, ("kmeans", "kmeans"), 20_000, "points"),
)
