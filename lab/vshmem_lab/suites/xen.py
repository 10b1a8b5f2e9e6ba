"""The suite `xen`: Raw, Sync, Sync 1k and TCP between Xen domains, as the papers; and libxenvchan.

All of it is emulated: Xen 4.17 and its domains run inside QEMU without KVM. So the contenders are
to be compared with each other, not with the papers' times, which are those of a Pentium D of 2.8
GHz under Xen 3 (paper 000, table 6). The
papers have means.
"""

from __future__ import annotations

from vshmem_lab.model import THERE_AND_BACK, Case, Contender
from vshmem_lab.suites.parts import SEGMENT, VSHMEM

SUITE = "xen"
# Microseconds there and back, by place: means and, in parentheses, standard deviations.
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
RUNNER = "Xen"
CONTENDERS = (
    Contender("Raw", RUNNER, ("bare", "8"), floor=True),
    Contender("Sync", RUNNER, ("semaphore", "8"), vshmem=True),
    Contender("Sync 1k", RUNNER, ("segment", "1000")),
    Contender("TCP", RUNNER, ("tcp", "8")),
)
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
            "the papers' ping-pong",
            f"Xen {place}",
            CONTENDERS,
            way=THERE_AND_BACK,
            warm=False,
            papers={name: f"{us} µs" for name, us in figures.items()},
        )
        for place, figures in PAPERS.items()
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
