"""The suite `rivals`: the same work by what programs use instead.

One program does the work, `src/channels/measure.c`; each rival is a file beside it, and runs at the
settings that its own documentation has: lab/README.md says which, and where they come from. Some
sleep while they wait, some only poll; Vshmem spins first, then sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass

from vshmem_lab.model import ONE_WAY, THERE_AND_BACK, Case, Contender
from vshmem_lab.suites.parts import SEGMENT, VSHMEM, floor, ipcbench, vshmem
from vshmem_lab.suites.sharing import NETWORK, PAYLOADS, bare, methods

SUITE = "rivals"
NATIVE = "native"
LARGE = 64 << 20


@dataclass(frozen=True)
class Channel:
    """A rival: what it is called, its program, its word there, and what it lacks."""

    name: str
    program: str
    word: str
    lacks: str = ""
    vshmem: bool = False
    one_sender: bool = False

    def contender(self, work: str) -> Contender:
        """It at this work."""
        words = (self.word, work, "{size}")
        return Contender(self.name, self.program, words, vshmem=self.vshmem, lacks=self.lacks)


POLLS = "types, sleeping receivers, a killed peer"
SHARED = "receivers that share a queue"
ASKED = f"types, sleeping receivers, {SHARED}"
CHANNELS = (
    Channel(f"{VSHMEM}, System V queues", "channel, Vshmem", "queue", vshmem=True),
    Channel("kernel, System V queues", "channel", "queue"),
    Channel("POSIX queues", "channel", "mqueue"),
    Channel("pipes", "channel", "pipe", "messages, types"),
    Channel("Unix sockets", "channel", "unix", "types"),
    Channel("TCP", "channel", "tcp", "messages, types", one_sender=True),
    Channel("vsock", "channel", "vsock", "messages, types", one_sender=True),
    Channel("Boost.Interprocess", "channel-boost", "boost", "types, a killed peer"),
    Channel("Boost.Interprocess, polled", "channel-boost", "boost-poll", POLLS),
    Channel("iceoryx2", "channel-iceoryx", "iceoryx", f"types, {SHARED}"),
    Channel("iceoryx2, polled", "channel-iceoryx", "iceoryx-poll", ASKED),
    Channel("UCX sysv", "channel-ucx", "ucx-sysv", "sleeping receivers"),
    Channel("UCX posix", "channel-ucx", "ucx-posix", "sleeping receivers"),
    Channel("libfabric shm", "channel-fabric", "fabric", "sleeping receivers"),
    Channel("Aeron IPC", "channel-aeron", "aeron", ASKED),
    Channel("a bare ring", "channel", "ring", f"several senders, {POLLS}", one_sender=True),
)
# Of these the payload lies in a segment, where it need not be cut to messages.
SEGMENTS = (
    Channel(f"{VSHMEM}, {SEGMENT}", "channel, Vshmem", "segment", vshmem=True, one_sender=True),
    Channel(f"kernel, {SEGMENT}", "channel", "segment", one_sender=True),
)
LINE = floor("handover bare", "a cache line there and back, two processors that spin")


def messages(name: str, work: str, sizes: tuple[int, ...], **rest) -> Case:
    """The same work by all of them."""
    floors = (LINE,) if rest.get("way") == THERE_AND_BACK else ()
    found = (*CHANNELS, *SEGMENTS) if max(sizes) > 8192 else CHANNELS
    able = [one.contender(work) for one in found if not (work == "senders" and one.one_sender)]
    return Case(SUITE, name, NATIVE, (*floors, *able), sizes, **rest)


CASES = (
    messages("send and receive, uncontended", "alone", (64,)),
    messages(
        "a message there and back",
        "handover",
        (8, 64, 1024, 65536),
        way=THERE_AND_BACK,
        across=True,
    ),
    messages("a stream, per message", "stream", (64, 4096), way=ONE_WAY),
    messages("four send to one, per message", "senders", (64,), way=ONE_WAY),
    messages("bandwidth", "bandwidth", (LARGE,), unit="MB/s", way=ONE_WAY),
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
        (
            bare("guests"),
            *methods("guests", f"{VSHMEM}, ", ours=True),
            *NETWORK,
            Contender("vsock", "vsock between machines", ("vsock",)),
        ),
        PAYLOADS,
        way=THERE_AND_BACK,
    ),
)
