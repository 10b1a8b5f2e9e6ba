"""The suite `xen`: Raw, Sync, Sync 1k and TCP between Xen domains, beside the papers' figures.

All of it is emulated: Xen 4.17 and its domains run inside QEMU without KVM. So the contenders are
to be compared with each other, not with the papers' times, which are those of a Pentium D of 2.8
GHz under Xen 3 (Youseff et al., Paravirtualization and autotuned linear algebra, table 6). The
papers have means.
"""

from __future__ import annotations

from vshmem_lab.model import THERE_AND_BACK, Case, Contender

SUITE = "xen"
# Microseconds there and back, by place.
PAPERS = {
    "native": {"Raw": "0.49", "Sync": "1.4", "Sync 1k": "3.4", "TCP": "52.6"},
    "host-guest": {
        "Raw": "0.35-0.36",
        "Sync": "0.78-0.8",
        "Sync 1k": "3.1-3.3",
        "TCP": "56.7-70.3",
    },
    "guest-guest": {"Raw": "0.36-0.39", "Sync": "0.8", "Sync 1k": "2.9-3.3", "TCP": "80.9-104.0"},
}
CONTENDERS = (
    Contender("Raw", "Xen", ("bare",), floor=True),
    Contender("Sync", "Xen", ("semaphore",), vshmem=True),
    Contender("Sync 1k", "Xen", ("segment",)),
    Contender("TCP", "Xen", ("tcp",)),
)

CASES = tuple(
    Case(
        SUITE,
        "the papers' ping-pong",
        f"Xen {place}",
        CONTENDERS,
        way=THERE_AND_BACK,
        papers={name: f"{us} µs" for name, us in figures.items()},
    )
    for place, figures in PAPERS.items()
)
