"""The suite `algebra`: tuning and DGEMM in and out of a machine, after paper 000.

Youseff et al., Paravirtualization effect on single- and multi-threaded memory-intensive linear
algebra software. A case is after a table or figure of theirs. They measured native Linux beside
Xen's domains on a Pentium D of 2.8 GHz, with 16 KiB and 1 MiB of caches. Their figures have no
numbers that could be read; what their tables and text say stands beside ours. Each size is measured
five times, as they did, and CacheEdge twenty times, however little time there is.

Machines are those that this host can have: where they are emulated, they have small matrices and a
small limit of memory; where KVM boots, they have the papers' sizes and memory (756 and 256 MB).
"""

from __future__ import annotations

from vshmem_lab.model import Case, Contender
from vshmem_lab.runners.algebra import (
    KVM,
    LEVEL2,
    LIMITS,
    LITTLE,
    SCARCE_TOGETHER,
    TOGETHER,
    TOGETHER_IN_KVM,
    TRANSPOSED,
)
from vshmem_lab.runners.algebra_programs import EDGES
from vshmem_lab.suites.parts import VSHMEM

SUITE = "algebra"
# Cases and a contender that the report explains.
SCARCE, SWAPPED = "figure 8: DGEMM, memory scarce", "figure 11: swapped, memory scarce"
PLENTIFUL = "memory plentiful"
NATIVE, MACHINE = "native", "a machine"
BOTH = "native and machine"
# Of DGEMM: what emulation takes seconds for, and the papers' sizes.
SMALL, PAPERS = tuple(range(100, 700, 100)), tuple(range(100, 4100, 100))
MFLOPS = "Mflop/s"
# The papers' numbers of runs: of each size, and of CacheEdge.
RUNS, SWEEPS = 5, 20


def places(program: str, *words: str) -> tuple[Contender, ...]:
    """A program on this kernel, and in a machine that Vshmem runs."""
    return tuple(
        Contender(where, f"algebra {program}, {where}", words, base=where == NATIVE)
        for where in (NATIVE, MACHINE)
    )


def parameters(names: dict[str, str]) -> tuple[Contender, ...]:
    """What the tuner chose for each of these, in both places."""
    return tuple(
        Contender(f"{where}, {said}", f"algebra tuning, {where}", (name,), base=where == NATIVE)
        for name, said in names.items()
        for where in (NATIVE, MACHINE)
    )


def of_both(papers: dict[str, str]) -> dict[str, str]:
    """The papers' figure, which was the same in both places."""
    return {
        f"{where}, {name}": figure for name, figure in papers.items() for where in (NATIVE, MACHINE)
    }


def probe(name: str, what: str, unit: str, paper: str = "") -> Case:
    """Table 3, or figure 2."""
    papers = {NATIVE: paper, MACHINE: paper}
    found = places("probe", what)
    return Case(SUITE, name, BOTH, found, unit=unit, warm=False, papers=papers)


def dgemm(where: str, what: str, in_vshmem: bool, *libraries: str) -> tuple[Contender, ...]:
    """What of DGEMM by some libraries, and with the operands in a segment of Vshmem."""
    segment = Contender(
        f"OpenBLAS, operands in {VSHMEM}",
        f"algebra OpenBLAS, {where}, {VSHMEM}",
        (what,),
        vshmem=True,
    )
    others = (
        Contender(name, f"algebra {name}, {where}", (what,), bar=name != "OpenBLAS")
        for name in libraries
    )
    return (segment, *others) if in_vshmem else tuple(others)


BARS = ("OpenBLAS", "BLIS", "ATLAS")


def by_size(name: str, where: str, sizes: tuple[int, ...]) -> Case:
    """Figure 8 with plentiful memory: a fresh process for each."""
    found = dgemm(where, "rate", True, *BARS, "tuned")
    return _sized(name, where, found, sizes, MFLOPS)


def profile(name: str, what: str, unit: str, where: str, sizes: tuple[int, ...]) -> Case:
    """Figures 10 to 15, of the processes that figure 8 has measured."""
    return _sized(name, where, dgemm(where, what, True, "OpenBLAS"), sizes, unit)


def _sized(
    name: str, where: str, found: tuple[Contender, ...], sizes: tuple[int, ...], unit: str
) -> Case:
    more = {"counts": "rows", "unit": unit, "warm": False, "extremes": True}
    return Case(SUITE, name, where, found, sizes, runs=RUNS, least=RUNS, **more)


def scarce(figure: str, what: str, unit: str, where: str) -> Case:
    """Figures 8 and 10 to 13 with scarce memory, beside plentiful."""
    in_kvm = where == KVM
    limit = f"a machine of {LITTLE} MiB" if in_kvm else f"{LIMITS[where] >> 20} MiB of memory"
    runner = f"algebra OpenBLAS, {where}"
    found = (
        Contender(PLENTIFUL, runner, (what,), base=True),
        Contender(limit, f"{runner}, scarce", (what,)),
    )
    return _sized(figure, where, found, SCARCE_SIZES[where], unit)


def routines(where: str, rows: int) -> Case:
    """Figure 7: each routine by what the tuner made, beside others."""
    found = tuple(
        Contender(f"{name} {routine}", f"algebra {name} {routine}, {where}", ("rate",), bar=True)
        for routine in (*(f"GEMM{transposed}" for transposed in TRANSPOSED), *LEVEL2)
        for name in ("tuned", *BARS)
    )
    segment = dgemm(where, "rate", True)
    name = "figure 7: routines with the parameters tuned"
    return _sized(name, where, (*segment, *found), (rows,), MFLOPS)


def edges(where: str, rows: int) -> tuple[Case, ...]:
    """Figures 3 and 4: blocked for L1 alone, and for L2 by the size of its part."""
    runner, words = f"algebra edges, {where}", ("rate", str(rows))
    found = (Contender("tuned", runner, words, base=True),)
    more = {"unit": MFLOPS, "warm": False, "runs": SWEEPS, "least": SWEEPS}
    of = f"DGEMM of {rows:,} rows"
    return (
        Case(SUITE, f"figure 3: {of}, blocked for L1 alone", where, found, **more),
        Case(SUITE, f"figure 4: {of} by CacheEdge", where, found, EDGES[1:], **more),
    )


def chosen() -> Case:
    """Table 4 and figure 5: the median and the histogram of what CacheEdge would be."""
    found = tuple(
        Contender(where, f"algebra edges, {where}", ("chosen", str(rows)), base=where == NATIVE)
        for where, rows in SWEPT
    )
    papers = {NATIVE: "1024 - 1536 KB", MACHINE: "1024 - 1536 KB"}
    name = "table 4, figure 5: CacheEdge chosen"
    more = {"unit": "B", "warm": False, "choices": True, "papers": papers}
    more |= {"runs": SWEEPS, "least": SWEEPS}
    return Case(SUITE, name, BOTH, found, **more)


def together(name: str, where: tuple[str, ...], sizes: tuple[int, ...], memory: str = "") -> Case:
    """Figure 16: the mean of two processes that begin together."""
    found = tuple(
        Contender(
            f"two in {place}" if place.startswith("one") else f"one in each of {place}",
            f"algebra OpenBLAS, {one}",
            ("rate",),
            vshmem=place.startswith("two"),
        )
        for one, place in ((one, one.removesuffix(", scarce")) for one in where)
    )
    return _sized(f"figure 16: two DGEMMs at a time{memory}", name, found, sizes, MFLOPS)


# The papers swept 2,500 rows.
SWEPT = ((NATIVE, 2500), (MACHINE, 400))
# What the tuner chooses, by what it prints: how that is called, and the papers' figure.
CHOSEN = {
    "gemm-nb": ("GEMM NB", "36"),
    "gemm-mu": ("GEMM mu", "6"),
    "gemm-nu": ("GEMM nu", "1"),
    "gemm-ku": ("GEMM ku", "48"),
    "gemm-vw": ("GEMM doubles in a vector", ""),
    "gemm-ma": ("GEMM ma", "1"),
    "gemm-lat": ("GEMM lat", "6"),
    "gemvn-xunroll": ("GEMVN Xunroll", "32"),
    "gemvn-yunroll": ("GEMVN Yunroll", "4"),
    "gemvn-vw": ("GEMVN doubles in a vector", ""),
    "gemvt-xunroll": ("GEMVT Xunroll", "2"),
    "gemvt-yunroll": ("GEMVT Yunroll", "16"),
    "gemvt-vw": ("GEMVT doubles in a vector", ""),
    "ger-mu": ("GER mu", "16"),
    "ger-nu": ("GER nu", "1"),
    "ger-vw": ("GER doubles in a vector", ""),
}
GENERATED = (*BARS, "reference BLAS", "tuned", "untuned", "naive")

# The matrices of 3,100 rows, and of 591, fill what there is.
LARGE = tuple(range(2000, 4200, 200))
SCARCE_SIZES = {NATIVE: LARGE, MACHINE: tuple(range(300, 800, 100)), KVM: LARGE}
SCARCELY = ", memory scarce"

CASES = (
    probe("table 3: L1 cache", "l1", "B", "16 KB"),
    probe("table 3: L2 cache", "l2", "B"),
    probe("table 3: registers", "registers", "", "7"),
    probe("table 3: FPU registers", "fpu-registers", "", "15"),
    probe("table 3: FPU pipeline", "fpu-pipeline", "", "6"),
    probe("figure 2: FPU, register to register", "fpu-rate", MFLOPS),
    Case(
        SUITE,
        "table 5: parameters that the tuner chose",
        BOTH,
        parameters({what: said for what, (said, _) in CHOSEN.items()}),
        unit="",
        warm=False,
        choices=True,
        papers=of_both(dict(CHOSEN.values())),
    ),
    Case(
        SUITE,
        "DGEMM of 240 rows with what the tuner chose",
        BOTH,
        places("tuning", "gemm-rate"),
        unit=MFLOPS,
        warm=False,
    ),
    *(case for where, rows in SWEPT for case in edges(where, rows)),
    chosen(),
    _sized(
        "figure 6: DGEMM, written by hand and generated",
        NATIVE,
        dgemm(NATIVE, "rate", True, *GENERATED),
        (1000,),
        MFLOPS,
    ),
    _sized(
        "figure 6: DGEMM, written by hand and generated",
        MACHINE,
        dgemm(MACHINE, "rate", True, *GENERATED),
        (300,),
        MFLOPS,
    ),
    routines(NATIVE, 1000),
    routines(MACHINE, 300),
    by_size("figure 8: DGEMM, memory plentiful", NATIVE, PAPERS),
    by_size("figure 8: DGEMM, memory plentiful", MACHINE, SMALL),
    profile("figure 8: DGEMM, memory plentiful", "rate", MFLOPS, KVM, PAPERS),
    *(
        profile(f"figure {figure}, memory plentiful", what, unit, where, sizes)
        for where, sizes in ((NATIVE, PAPERS), (MACHINE, SMALL), (KVM, PAPERS))
        for figure, what, unit in (
            ("10: resident set", "resident", "B"),
            ("11: swapped", "swapped", "B"),
            ("12: major faults", "major", ""),
            ("13: minor faults", "minor", ""),
            ("14: data TLB misses", "data-tlb", ""),
            ("15: instruction TLB misses", "code-tlb", ""),
        )
    ),
    *(
        scarce(name, what, unit, where)
        for where in (NATIVE, MACHINE, KVM)
        for name, what, unit in (
            (SCARCE, "rate", MFLOPS),
            ("figure 10: resident set, memory scarce", "resident", "B"),
            (SWAPPED, "swapped", "B"),
            ("figure 12: major faults, memory scarce", "major", ""),
            ("figure 13: minor faults, memory scarce", "minor", ""),
        )
    ),
    Case(
        SUITE, "figure 9: the kernel's code", BOTH, places("kernel", "code"), unit="B", warm=False
    ),
    Case(
        SUITE, "figure 9: the kernel's data", BOTH, places("kernel", "data"), unit="B", warm=False
    ),
    together(NATIVE, TOGETHER[:2], (500, 1000, 2000, 4000)),
    together("guest-guest", TOGETHER[2:], (200, 400, 600)),
    together(NATIVE, SCARCE_TOGETHER[:2], LARGE, SCARCELY),
    together("guest-guest", SCARCE_TOGETHER[2:], SCARCE_SIZES[MACHINE], SCARCELY),
    together("guest-guest, KVM", TOGETHER_IN_KVM, LARGE, SCARCELY),
)
