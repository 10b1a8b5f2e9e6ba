"""The suite `xen`: Raw, Sync, Sync 1k and TCP between Xen domains, as paper 000; and libxenvchan.

Sync is P and V by busy waiting in a segment (see `sync`), of dom0 and dom0 (the paper's host-host),
dom0 and a guest, and two guests, with two processors in dom0 and with one (no SMP). All of it is
emulated: Xen 4.17 and its domains run inside QEMU without KVM. So the contenders are to be compared
with each other, not with the paper's times, which are those of a Pentium D of 2.8 GHz under Xen 3
(paper 000, table 6). Its native Linux stands beside in an emulated machine without Xen.
"""

from __future__ import annotations

from vshmem_lab.model import THERE_AND_BACK, Case, Contender
from vshmem_lab.runners.xen import UP, XEN
from vshmem_lab.suites.parts import SEGMENT, VSHMEM

SUITE = "xen"
# Microseconds there and back, by place: means and, in parentheses, standard deviations. Where two
# figures are given, the first is without SMP in dom0.
WORDS = ("Raw", "Sync", "Sync 1k", "TCP")
PAPERS = {
    "native": {
        "Raw": "0.49 (0.03)",
        "Sync": "1.4 (0.02)",
        "Sync 1k": "3.4 (0.07)",
        "TCP": "52.6 (0.4)",
    },
    "host-guest": {
        "Raw": "0.35-0.36 (0.005-0.007)",
        "Sync": "0.78-0.8 (0.01-0.03)",
        "Sync 1k": "3.1-3.3 (0.05-0.2)",
        "TCP": "56.7-70.3 (0.2-0.4)",
    },
    "guest-guest": {
        "Raw": "0.36-0.39 (0.005-0.03)",
        "Sync": "0.8 (0.02)",
        "Sync 1k": "2.9-3.3 (0.1-1.14)",
        "TCP": "80.9-104.0 (0.3-0.5)",
    },
}
# Table 6, column by column.
TABLE = {
    "native": tuple(PAPERS["native"].values()),
    f"{XEN}host-guest{UP}": ("0.36 (0.007)", "0.8 (0.01)", "3.3 (0.05)", "56.7 (0.2)"),
    f"{XEN}guest-guest{UP}": ("0.36 (0.005)", "0.8 (0.02)", "3.3 (1.14)", "80.9 (0.3)"),
    f"{XEN}host-host": ("0.36 (0.009)", "0.8 (0.01)", "2.8 (0.15)", "38.4 (0.3)"),
    f"{XEN}host-guest": ("0.35 (0.005)", "0.78 (0.03)", "3.1 (0.2)", "70.3 (0.4)"),
    f"{XEN}guest-guest": ("0.39 (0.03)", "0.8 (0.02)", "2.9 (0.1)", "104.0 (0.5)"),
}
RUNNER, NATIVELY = "Xen", "pair in a machine"


def contenders(environment: str) -> tuple[Contender, ...]:
    """The paper's four, by the bakery, and today's P and V beside."""
    natively = environment == "native"
    runner = NATIVELY if natively else RUNNER
    found = (
        Contender("Raw", runner, ("raw", "8"), floor=True),
        Contender("Sync", runner, ("bakery", "4"), vshmem=not natively),
        Contender("Sync 1k", runner, ("bakery", "1000")),
        Contender("Sync, compare-and-swap", runner, ("swap", "4")),
        Contender("Sync 1k, compare-and-swap", runner, ("swap", "1000")),
    )
    tcp = () if natively else (Contender("TCP", RUNNER, ("tcp", "8")),)
    return (*found, *tcp)


# With the same payload, copied out of the one's memory and into the other's.
LACKS = "several senders, messages, types"
MESSAGES = (
    Contender(f"{VSHMEM}, {SEGMENT}", RUNNER, ("segment", "{size}"), vshmem=True),
    Contender("libxenvchan", RUNNER, ("vchan", "{size}"), lacks=LACKS),
    Contender("libxenvchan, polled", RUNNER, ("vchan-polled", "{size}"), lacks=LACKS),
    Contender("TCP", RUNNER, ("tcp", "{size}"), lacks="messages, types"),
)

CASES = (
    *(
        Case(
            SUITE,
            "the papers' Sync",
            environment,
            contenders(environment),
            way=THERE_AND_BACK,
            warm=False,
            papers={name: f"{us} µs" for name, us in zip(WORDS, figures, strict=True)},
        )
        for environment, figures in TABLE.items()
    ),
    *(
        Case(
            SUITE,
            f"a message between {whom}",
            f"Xen {place}",
            MESSAGES,
            (8, 1000),
            way=THERE_AND_BACK,
            warm=False,
        )
        for place, whom in (("host-guest", "dom0 and a guest"), ("guest-guest", "guests"))
    ),
)
