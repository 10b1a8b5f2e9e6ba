"""The suite `rivals`: the same work by what programs use instead.

Each rival runs at its usual settings: pipes and sockets as they are made, TCP with TCP_NODELAY,
POSIX queues with the 10 messages that the kernel allows. All of them sleep while they wait; Vshmem
spins first.
"""

from __future__ import annotations

from vshmem_lab.model import THERE_AND_BACK, Case
from vshmem_lab.suites.parts import VSHMEM, floor, ipcbench, vshmem
from vshmem_lab.suites.sharing import NETWORK, PAYLOADS, bare, methods

SUITE = "rivals"
NATIVE = "native"

CASES = (
    Case(
        SUITE,
        "a message of 64 B",
        NATIVE,
        (
            floor("handover bare", "a cache line, two processors that spin"),
            vshmem("handover queue", f"{VSHMEM}, System V queues"),
            ipcbench("kernel, System V queues", "handover queue"),
            ipcbench("POSIX queues", "handover mqueue"),
            ipcbench("pipes", "handover pipe", lacks="messages, types"),
            ipcbench("Unix sockets", "handover unix", lacks="types"),
            ipcbench("TCP", "handover tcp", lacks="messages, types"),
        ),
        way=THERE_AND_BACK,
        across=True,
    ),
    Case(
        SUITE,
        "a turn by semaphores",
        NATIVE,
        (
            floor("handover bare", "a cache line, two processors that spin"),
            vshmem("handover semaphore", f"{VSHMEM}, System V semaphores"),
            ipcbench("kernel, System V semaphores", "handover semaphore"),
            ipcbench(
                "POSIX semaphores", "handover posix", lacks="several at once, undo after a death"
            ),
        ),
        way=THERE_AND_BACK,
        across=True,
    ),
    Case(
        SUITE,
        "a message between machines",
        "guest-guest",
        (bare("guests"), *methods("guests", f"{VSHMEM}, ", ours=True), *NETWORK),
        PAYLOADS,
        way=THERE_AND_BACK,
    ),
)
