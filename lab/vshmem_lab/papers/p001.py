"""Paper 001: nine applications, four bottlenecks and their remedies."""

from __future__ import annotations

from vshmem_lab.papers.model import (
    Claim,
    Need,
    Paper,
    Rerun,
    Row,
    Value,
    drawing,
    faster,
    lacking,
    numbered,
)
from vshmem_lab.suites import bigdata, vsuite

SUITE, PLACE = "vsuite", "2 processors"
# What the suites measure now, and what the kept runs of before have.
NOW = {case.name: case.sizes[0] for case in (*vsuite.CASES, *bigdata.CASES)}
EARLIER = {
    "histogram": 1_000_000,
    "wordcount": 100_000,
    "gmake": 4,
    "compress": 16,
    bigdata.COUNT: 512,
}
WHY = (
    "Machines are emulated, of two processors, without Xen; seven of nine programs stand for the "
    "paper's (lab/README.md), and the kept run's take a millisecond to a second and a half."
)


def of(application: str, *places: str) -> tuple[Value, ...]:
    """An application in places, by each size that a kept run may have."""
    return tuple(
        Value(f"{application}, {place}", SUITE, application, PLACE, place, sizes[application])
        for sizes in (NOW, EARLIER)
        for place in places
    )


def remedied(application: str, remedy: str) -> tuple[Claim, ...]:
    """It is faster with a remedy."""
    pairs = zip(of(application, remedy), of(application, "guest"), strict=True)
    return tuple(faster(*pair) for pair in pairs)


def counted(*places: str) -> tuple[Value, ...]:
    """Spark's word count."""
    return tuple(
        Value(place, bigdata.SUITE, bigdata.COUNT, "4 machines", place, sizes[bigdata.COUNT])
        for sizes in (NOW, EARLIER)
        for place in places
    )


MANY = (Need.KVM, Need.CORES)
SHOWN = ("gmake", "wordcount", "compress")
COUNTERS = "No counters of misses are to be had in virtual machines without them."


def missed(item: str, subject: str, found: str) -> Row:
    """A row of what counters tell, of which the suite's report has a table."""
    needs, wants = (Need.COUNTERS,), MANY
    return Row(item, subject, found, Rerun(SUITE), missing=COUNTERS, needs=needs, wants=wants)


ROWS = (
    Row(
        "figure 1",
        "nine applications natively, paravirtual and hardware-assisted, by 1 to 32 cores",
        "up to 1,432 % more time by 32 cores",
        Rerun(SUITE),
        (*of("gmake", "native", "guest"), *of("histogram", "native", "guest")),
        why=f"{WHY} So what the machine itself costs can't be said.",
        wants=MANY,
    ),
    drawing("table 1", "abbreviations of the remedies"),
    lacking(
        "table 2",
        "the share of cycles in Xen's emulated time",
        "4 to 72 %; with the remedy mostly below 2 %",
        "It takes Xen on a real host, and its cycles: a guest does not see them. What `vsuite` "
        "reports is time in the guest's own kernel, which is another quantity.",
        Need.XEN,
    ),
    drawing("figure 2", "iXen's code"),
    lacking(
        "figure 3",
        "where six applications idle, by 32 cores",
        "more idle time in machines, most of it in the hypervisor",
        "It takes Xen on a real host; runs of `vsuite` tell the guest's idle time only.",
        Need.XEN,
        Need.CORES,
    ),
    missed("figure 4", "L2 misses of five applications", "fewer with the remedy cm"),
    drawing("figure 5", "Xen's code"),
    drawing("figure 6", "Xen's code"),
    missed("figure 7", "iTLB misses of nine applications", "most in paravirtual ones"),
    Row(
        "figure 8",
        "histogram and linear regression with fewer iTLB misses",
        "16.6 % and 7.8 % faster",
        Rerun(SUITE, "histogram"),
        of("histogram", "guest", "guest, iTLB"),
        remedied("histogram", "guest, iTLB"),
        why=f"{WHY} The remedy here is huge pages, the paper's larger buffers.",
        wants=MANY,
    ),
    lacking(
        "figure 9",
        "gains by remedy, paravirtual",
        "2.33 times as fast with all",
        "It takes paravirtual guests of Xen with the remedies, on a host whose Xen is not "
        "emulated.",
        Need.XEN,
        Need.CORES,
    ),
    Row(
        "figure 10",
        "gains by remedy, hardware-assisted",
        "1.65 times as fast with all (1.20 to 3.78)",
        Rerun(SUITE),
        tuple(x for name in SHOWN for x in of(name, "guest", "guest, all remedies")),
        tuple(x for name in SHOWN for x in remedied(name, "guest, all remedies")),
        why=WHY,
        wants=MANY,
    ),
    Row(
        "table 3",
        "Hadoop's word count on four machines, of 4 and 16 GB",
        "with the remedies 30 to 50 % less overhead",
        Rerun("bigdata", "word count"),
        counted("native", "guest", "guest, all remedies"),
        tuple(
            faster(*pair)
            for pair in zip(counted("guest, all remedies"), counted("guest"), strict=True)
        ),
        why="In the kept run Spark counts half a MiB once, in emulated machines that want twice "
        "the cores there are: the idle remedy rests there, and what it looks for costs. Since "
        "2026-11-29 the suite counts 256 MiB five times. No cluster of real hosts, and in the "
        "place of HDFS a file system of the host that all machines share.",
        wants=(*MANY, Need.HOSTS),
    ),
    lacking(
        "figure 11",
        "seven applications on a kernel changed for many cores (PK)",
        "1.18 times as fast with vtime, 1.88 with all",
        "PK is a kernel of 2010 for 48 cores, whose changes Linux has since; two cores show none.",
    ),
)
PAPER = Paper("001", (*numbered("figure", 11), *numbered("table", 3)), ROWS)
