"""The suite `sync`: the papers' own Raw, Sync and Socket, by the size of what is handed over.

Sync (papers 000 and 004) is P and V that wait busily on an integer in a plain segment, without a
library and without the kernel: by Lamport's bakery as paper 000 has it, and by today's
compare-and-swap. So what differs is whose segment it is, the kernel's or a pool's, and where the
processes are. Each repetition is a run of 100,000 turns, and its value their mean; 25 of them
(`--repetitions 25`) are the papers' 25 runs. The papers' figures are those of Pentium Ds of 2.8 GHz
under Xen 3.
"""

from __future__ import annotations

from vshmem_lab.model import THERE_AND_BACK, Case, Contender
from vshmem_lab.suites.parts import VSHMEM
from vshmem_lab.suites.xen import PAPERS

SUITE = "sync"
CASE = "the papers' Sync"
NATIVE, GUESTS = "native", "guest-guest"
RAW, SYSTEM_V, ONE_MACHINE = "Raw", "System V", "System V in one machine"
WAYS = (("bakery", "bakery"), ("swap", "compare-and-swap"))
# Paper 004 has 0 to 1,000 bytes; paper 000 an integer, and 1,000 bytes.
SIZES = (0, 4, *range(100, 1001, 100))
# netpong's messages begin with a head of 8 bytes.
SMALLEST = 100


def sync(name: str, runner: str, *, ours: bool = False) -> tuple[Contender, ...]:
    """P and V of both kinds."""
    return tuple(Contender(f"{name}, {way}", runner, (w,), vshmem=ours) for w, way in WAYS)


def raw(runner: str) -> Contender:
    """One shared flag that both processes look at."""
    return Contender(RAW, runner, ("raw",), floor=True)


SOCKETS = tuple(
    Contender(word.upper(), "network", (word,), least=SMALLEST) for word in ("tcp", "udp")
)
LOOPBACK = tuple(
    Contender(word.upper(), "loopback", (word,), least=SMALLEST) for word in ("tcp", "udp")
)


def papers(where: str) -> dict[str | tuple[str, int], str]:
    """What the papers have there: a mean and, in parentheses, a standard deviation; or variances.

    Paper 000 has the bakery; what paper 004 has P and V of it does not say, nor the size.
    """
    if where not in PAPERS:
        return {}
    us = {name: f"{figure} µs (000)" for name, figure in PAPERS[where].items()}
    ours = SYSTEM_V if where == NATIVE else VSHMEM
    found: dict[str | tuple[str, int], str] = {RAW: us["Raw"], ("TCP", 100): us["TCP"]}
    found |= {(f"{ours}, bakery", 4): us["Sync"], (f"{ours}, bakery", 1000): us["Sync 1k"]}
    if where == NATIVE:
        found[f"{SYSTEM_V}, bakery", 500] = "1.92 µs, variance 2.7 µs² over all sizes (004)"
    if where == GUESTS:
        found[f"{VSHMEM}, bakery", 500] = "variance 0.307 µs² over all sizes (004)"
        found["TCP", 500] = "118 µs, variance 6.28 µs² over all sizes (004)"
        found["UDP", 500] = "107 µs, variance 31.2 µs² over all sizes (004)"
    return found


def case(where: str, floor: Contender, *contenders: Contender) -> Case:
    """The curve in one place."""
    return Case(
        SUITE,
        CASE,
        where,
        (floor, *contenders),
        SIZES,
        counts="bytes",
        way=THERE_AND_BACK,
        spread=True,
        # Between emulated machines hardly any repetition is steady.
        across=where in (NATIVE, "containers"),
        papers=papers(where),
    )


CASES = (
    case(
        NATIVE,
        raw("pair"),
        *sync(VSHMEM, "pair, Vshmem", ours=True),
        *sync(SYSTEM_V, "pair"),
        *LOOPBACK,
    ),
    case("containers", raw("containers"), *sync(VSHMEM, "containers", ours=True)),
    case("host-guest", raw("host and guest"), *sync(VSHMEM, "host and guest", ours=True)),
    case(
        GUESTS,
        raw("guests"),
        *sync(VSHMEM, "guests", ours=True),
        *sync(ONE_MACHINE, "pair in a machine"),
        *SOCKETS,
    ),
)
