"""Paper 000: memory that domains share, ATLAS's tuning, DGEMM and the memory hierarchy."""

from __future__ import annotations

from vshmem_lab.papers.model import (
    Need,
    Paper,
    Rerun,
    Row,
    Value,
    alike,
    drawing,
    faster,
    numbered,
)
from vshmem_lab.papers.p004 import NATIVELY, NOT_YET, synced

SUITE, BOTH = "algebra", "native and machine"
MACHINE = (
    "The machine is emulated, so its rates are not compared with the native ones; Xen's dom0 and "
    "domU do not contend."
)
SCARCE = f"{MACHINE} Memory is scarce by a limit of 8 MiB, not by a machine of 256 MB."
COUNTERS = "The processor's counters of TLB misses are hidden from this (virtual) machine."


def two(case: str, environment: str = BOTH) -> tuple[Value, ...]:
    """Natively and in a machine."""
    return tuple(Value(name, SUITE, case, environment, name) for name in ("native", "a machine"))


def probed(item: str, subject: str, found: str, *cases: str, why: str = "", **rest: object) -> Row:
    """A row of what is found natively and in a machine."""
    values = tuple(value for case in cases for value in two(case))
    named = tuple(
        Value(f"{one.case.partition(': ')[2] or subject}, {one.name}", *one.key, one.contender)
        for one in values
    )
    wants = (Need.KVM,)
    rerun = Rerun(SUITE, f"{item}:")
    return Row(item, subject, found, rerun, named, why=why, wants=wants, **rest)


def grown(item: str, subject: str, found: str, size: int, why: str = "") -> Row:
    """A row of figures 8 and 10 to 13, with memory plentiful and scarce in a machine."""
    name = f"{item}: {subject}, memory scarce"
    values = tuple(
        Value(one, SUITE, name, "a machine", one, size)
        for one in ("memory plentiful", "8 MiB of memory")
    )
    wants = (Need.KVM, Need.SWAP)
    rerun = Rerun(SUITE, f"{item}:")
    return Row(item, subject, found, rerun, values, why=why or SCARCE, wants=wants)


def missed(item: str, subject: str) -> Row:
    """A row of what counters would show."""
    rerun, needs, wants = Rerun(SUITE, f"{item}:"), (Need.COUNTERS,), (Need.KVM,)
    return Row(item, subject, "no difference", rerun, missing=COUNTERS, needs=needs, wants=wants)


def dgemm(name: str, case: str, size: int, where: str = "native") -> Value:
    """A line of DGEMM's."""
    return Value(name, SUITE, case, where, name, size)


BY_HAND = "figure 6: DGEMM, written by hand and generated"
TUNED = "figure 7: routines with the parameters tuned"
PLENTY = "figure 8: DGEMM, memory plentiful"
PAIRS = "figure 16: two DGEMMs at a time"
ROWS = (
    drawing("table 1", "notation"),
    drawing("figure 1", "the stacks of software"),
    drawing("table 2", "what ATLAS tunes"),
    probed(
        "table 3",
        "what the probes find",
        "L1 16 KB, 7 registers, FPU pipeline 6, 15 FPU registers; the same in all",
        "table 3: L1 cache",
        "table 3: registers",
        "table 3: FPU registers",
        "table 3: FPU pipeline",
        why="By probes like ATLAS's, not by ATLAS; another processor.",
    ),
    probed(
        "figure 2",
        "FPU, register to register",
        "no difference",
        "figure 2: FPU, register to register",
        why=MACHINE,
    ),
    Row(
        "figure 3",
        "DGEMM of 2,500 rows, blocked for L1",
        "no difference",
        Rerun(SUITE, "figure 3:", repetitions=20),
        (
            Value(
                "native, 2,500 rows",
                SUITE,
                "figure 3: DGEMM of 2,500 rows, blocked for L1 alone",
                "native",
                "tuned",
            ),
            Value(
                "a machine, 400 rows",
                SUITE,
                "figure 3: DGEMM of 400 rows, blocked for L1 alone",
                "a machine",
                "tuned",
            ),
        ),
        why=MACHINE,
        wants=(Need.KVM,),
    ),
    Row(
        "figure 4",
        "the same by CacheEdge",
        "no difference",
        Rerun(SUITE, "figure 4:", repetitions=20),
        tuple(
            Value(
                "native",
                SUITE,
                "figure 4: DGEMM of 2,500 rows by CacheEdge",
                "native",
                "tuned",
                size,
            )
            for size in (64 << 10, 1 << 20, 8 << 20)
        ),
        why=MACHINE,
        wants=(Need.KVM,),
    ),
    Row(
        "table 4",
        "the CacheEdge chosen, its median",
        "1,024 to 1,536 KB in all",
        Rerun(SUITE, "table 4", repetitions=20),
        two("table 4, figure 5: CacheEdge chosen"),
        why="Another processor. The machine multiplies 400 rows, not 2,500.",
        wants=(Need.KVM,),
    ),
    Row(
        "figure 5",
        "the histogram of these",
        "between 512 and 2,048 KB",
        Rerun(SUITE, "figure 5", repetitions=20),
        two("table 4, figure 5: CacheEdge chosen"),
        why="The run's report has the counts.",
        wants=(Need.KVM,),
    ),
    Row(
        "figure 6",
        "DGEMM written by hand, and generated",
        "by hand twice as fast",
        Rerun(SUITE, "figure 6:"),
        tuple(dgemm(name, BY_HAND, 1000) for name in ("ATLAS", "OpenBLAS", "BLIS", "tuned")),
        (faster(dgemm("OpenBLAS", BY_HAND, 1000), dgemm("tuned", BY_HAND, 1000)),),
        why="`tuned` is generated for this very processor, with its vectors of eight doubles; "
        "Debian's ATLAS and OpenBLAS choose of what they have. OpenBLAS 0.3.21 does not know this "
        "processor: asked since 2026-11-29, it names its kernel for Prescott, which has vectors "
        "of two.",
    ),
    Row(
        "figure 7",
        "routines with what was tuned",
        "no difference",
        Rerun(SUITE, "figure 7:"),
        tuple(dgemm(name, TUNED, 1000) for name in ("tuned GEMMNN", "tuned GEMMNT")),
        why=MACHINE,
        wants=(Need.KVM,),
    ),
    Row(
        "table 5",
        "the parameters chosen",
        "NB 36, mu 6, nu 1, ku 48, lat 6; the same in all",
        Rerun(SUITE, "table 5"),
        tuple(
            Value(
                f"{place}, {what}",
                SUITE,
                "table 5: parameters that the tuner chose",
                BOTH,
                f"{place}, {what}",
            )
            for what in ("GEMM NB", "GEMM mu", "GEMM nu", "GEMM ku")
            for place in ("native", "a machine")
        ),
        why="By kernel_tuner in the place of ATLAS's search.",
        wants=(Need.KVM,),
    ),
    Row(
        "figure 8",
        "DGEMM of 100 to 4,000 rows, memory plentiful and scarce",
        "4 Gflop/s from 700 rows on; scarce memory slows from 3,100 on; no difference",
        Rerun(SUITE, "figure 8", repetitions=5),
        tuple(dgemm(name, PLENTY, 1000) for name in ("OpenBLAS, operands in Vshmem", "OpenBLAS")),
        (
            alike(
                dgemm("OpenBLAS, operands in Vshmem", PLENTY, 1000), dgemm("OpenBLAS", PLENTY, 1000)
            ),
        ),
        why=f"Compared is memory of Vshmem with a program's own. {SCARCE}",
        wants=(Need.KVM, Need.SWAP),
    ),
    probed(
        "figure 9",
        "memory of the kernels",
        "domU's code is the smallest, its data half as much",
        "figure 9: the kernel's code",
        "figure 9: the kernel's data",
        why="Two kernels of another kind each: this host's, and that of Debian's machines.",
    ),
    grown("figure 10", "resident set", "as the matrices grow, up to the memory", 700),
    grown("figure 11", "swapped", "from 3,100 rows on with 256 MB", 700),
    grown("figure 12", "major faults", "the same", 700),
    grown("figure 13", "minor faults", "the same", 700),
    missed("figure 14", "data TLB misses"),
    missed("figure 15", "instruction TLB misses"),
    Row(
        "figure 16",
        "two DGEMMs in one domain or in two",
        "alike up to 3,100 rows; then two domains vary less",
        Rerun(SUITE, "figure 16"),
        tuple(
            Value(one, SUITE, PAIRS, "native", one, 1000)
            for one in ("two in one kernel", "one in each of two containers")
        ),
        (
            alike(
                *(
                    Value(one, SUITE, PAIRS, "native", one, 1000)
                    for one in ("two in one kernel", "one in each of two containers")
                )
            ),
        ),
        why=f"{MACHINE} Memory is not scarce; cases of scarce memory have no quiet run yet.",
        wants=(Need.KVM,),
    ),
    Row(
        "table 6",
        "Raw, Sync, Sync 1k and TCP natively and between domains",
        "Sync 1.4 µs natively, 0.78 to 0.8 between domains; Sync 1k 3.4 and 2.8 to 3.3; TCP 52.6 "
        "and 38.4 to 104",
        Rerun("sync", repetitions=25),
        (
            synced("Sync, native", "native", "System V, bakery", 4),
            synced("Sync, guest-guest", "guest-guest", "Vshmem, bakery", 4),
            synced("Sync 1k, native", "native", "System V, bakery", 1000),
            synced("Sync 1k, guest-guest", "guest-guest", "Vshmem, bakery", 1000),
            synced("TCP, guest-guest", "guest-guest", "TCP", 1000),
        ),
        (alike(synced("", "native", "System V, bakery"), NATIVELY),),
        missing=f"{NOT_YET} The suite `xen` has the same between domains of an emulated Xen.",
        wants=(Need.KVM, Need.XEN),
    ),
)
PAPER = Paper("000", (*numbered("table", 6), *numbered("figure", 16)), ROWS)
