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

SUITE, PLACE = "vsuite", "2 processors"
SIZES = {"histogram": 1_000_000, "wordcount": 100_000, "gmake": 4, "compress": 16}
WHY = (
    "Machines are emulated, of two processors, without Xen; seven of nine programs stand for the "
    "paper's (lab/README.md)."
)


def of(application: str, place: str) -> Value:
    """An application in a place."""
    name = f"{application}, {place}"
    return Value(name, SUITE, application, PLACE, place, SIZES[application])


def remedied(application: str, remedy: str) -> Claim:
    """It is faster with a remedy."""
    return faster(of(application, remedy), of(application, "guest"))


MANY = (Need.KVM, Need.CORES)
COUNTERS = "No counters of misses are to be had in virtual machines without them."
ROWS = (
    Row(
        "figure 1",
        "nine applications natively, paravirtual and hardware-assisted, by 1 to 32 cores",
        "up to 1,432 % more time by 32 cores",
        Rerun(SUITE),
        tuple(of(name, place) for name in ("gmake", "histogram") for place in ("native", "guest")),
        why=f"{WHY} So what the machine itself costs can't be said.",
        wants=MANY,
    ),
    drawing("table 1", "abbreviations of the remedies"),
    Row(
        "table 2",
        "the share of cycles in Xen's emulated time",
        "4 to 72 %; with the remedy mostly below 2 %",
        Rerun(SUITE),
        (of("gmake", "guest"), of("gmake", "guest, vtime")),
        (remedied("gmake", "guest, vtime"),),
        why=f"{WHY} What runs report is the share of all kernel time, which is another quantity.",
        wants=MANY,
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
    lacking("figure 4", "L2 misses of five applications", "fewer with the remedy cm", COUNTERS),
    drawing("figure 5", "Xen's code"),
    drawing("figure 6", "Xen's code"),
    lacking("figure 7", "iTLB misses of nine applications", "most in paravirtual ones", COUNTERS),
    Row(
        "figure 8",
        "histogram and linear regression with fewer iTLB misses",
        "16.6 % and 7.8 % faster",
        Rerun(SUITE, "histogram"),
        (of("histogram", "guest"), of("histogram", "guest, iTLB")),
        (remedied("histogram", "guest, iTLB"),),
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
        tuple(
            of(name, place)
            for name in ("gmake", "wordcount", "compress")
            for place in ("guest", "guest, all remedies")
        ),
        tuple(remedied(name, "guest, all remedies") for name in ("gmake", "wordcount", "compress")),
        why=WHY,
        wants=MANY,
    ),
    Row(
        "table 3",
        "Hadoop's word count on four machines, of 4 and 16 GB",
        "with the remedies 30 to 50 % less overhead",
        Rerun("bigdata", "word count"),
        tuple(
            Value(name, "bigdata", "Spark's word count", "4 machines", name, 512)
            for name in ("native", "guest", "guest, all remedies")
        ),
        (
            faster(
                *(
                    Value(name, "bigdata", "Spark's word count", "4 machines", name, 512)
                    for name in ("guest, all remedies", "guest")
                )
            ),
        ),
        why="Spark counts half a MiB once, in emulated machines that want twice the cores there "
        "are: "
        "the idle remedy rests there. No cluster of real hosts, and no HDFS.",
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
