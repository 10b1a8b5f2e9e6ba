"""The suite `sharing`: System V's segments, semaphores and queues, by the calls that programs make.

The same binary runs on the kernel's System V and on Vshmem. The floor is what the hardware gives:
plain mmap, or two processes that spin on one cache line. Papers 000 and 004 measure handing over
without calls, which is the suite `sync`; here only their figures of sockets stand beside, of
Pentium Ds of 2.8 GHz under Xen 3.
"""

from __future__ import annotations

from vshmem_lab.model import ONE_WAY, THERE_AND_BACK, Case, Contender, Wanted
from vshmem_lab.suites import xen
from vshmem_lab.suites.parts import (
    FLOOR,
    KERNEL,
    SEGMENT,
    VSHMEM,
    faster,
    floor,
    ipcbench,
    vshmem,
    within,
)

SUITE = "sharing"
NATIVE, GUESTS = "native", "guest-guest"
OURS, KERNELS = "Vshmem, ", "kernel, "
MANY_SETS, MANY_SEGMENTS = 80_000, 20_000
MANY, FEW = f"lookup {MANY_SETS},{MANY_SEGMENTS}", "lookup 10,10"
FEW_OBJECTS = "20 IPC objects"
PAYLOADS = (8, 1024, 65536)


def papers(where: str) -> dict[str | tuple[str, int], str]:
    """What papers 000 and 004 have of sockets in this place. Their Sync makes no call (`sync`)."""
    if where not in xen.PAPERS:
        return {}
    found = {("TCP", 8): f"{xen.PAPERS[where]['TCP']} µs"}
    if where == GUESTS:
        found["TCP", 8] += "; 118 µs (004)"
        found["UDP", 8] = "107 µs (004)"
    return found


def both(name: str, command: str, *wanted: Wanted, bare: str = "", **rest) -> Case:
    """The same command on the kernel's System V and on Vshmem, perhaps with a floor."""
    floors = (floor(bare),) if bare else ()
    contenders = (*floors, ipcbench(KERNEL, command), vshmem(command))
    return Case(SUITE, name, NATIVE, contenders, wanted=wanted, **rest)


def across(name: str, command: str, *wanted: Wanted, **rest) -> Case:
    """Two processes on two processors."""
    return both(name, command, *wanted, across=True, **rest)


def lookup(name: str, line: int) -> Case:
    """Among many IPC objects, against few."""
    few = vshmem(FEW, FEW_OBJECTS, line=line)
    contenders = (vshmem(MANY, line=line), Contender(few.name, few.runner, few.words, line=line))
    return Case(SUITE, name, NATIVE, contenders, wanted=(within(1.5, FEW_OBJECTS),))


def memory(name: str, line: int) -> Case:
    """Of a process that has made a call of each kind."""
    command = "process resident"
    contenders = (ipcbench(KERNEL, command, line=line), vshmem(command, line=line))
    return Case(SUITE, name, NATIVE, contenders, once=True, unit="KiB")


UNCONTENDED = (
    both("load and store, 64 KiB segment", "memory shm", within(1.05, FLOOR), bare="memory mmap"),
    both(
        "load and store, 64 MiB segment",
        "memory shm,large",
        within(1.05, FLOOR),
        bare="memory mmap,large",
    ),
    both("P and V, uncontended", "semaphore plain", faster(8)),
    both("P and V, uncontended, SEM_UNDO", "semaphore undo", faster(8)),
    both("P and V, uncontended, mode 0666", "semaphore open", faster(8)),
    both("P and V, uncontended, 250th of a set", "semaphore many", faster(8)),
    Case(
        SUITE,
        "P and V, uncontended, as root",
        NATIVE,
        (
            ipcbench(KERNEL, "semaphore plain", " as root"),
            vshmem("semaphore plain", where=", Vshmem as root"),
        ),
    ),
    both("send and receive, uncontended, 64 B", "queue 64", faster(8)),
    both("send and receive, uncontended, 1 KiB", "queue 1024", faster(5)),
)

ACROSS = (
    across(
        "Sync: semaphore ping-pong",
        "handover semaphore",
        within(2.5, FLOOR),
        bare="handover bare",
        way=THERE_AND_BACK,
    ),
    across(
        "64 B queue ping-pong",
        "handover queue",
        within(4, FLOOR),
        bare="handover bare",
        way=THERE_AND_BACK,
    ),
    across(
        "64 B ping-pong, one queue, two types",
        "handover types",
        bare="handover bare",
        way=THERE_AND_BACK,
    ),
    across(
        "queue stream, 64 B, per message",
        "stream 64",
        faster(8),
        bare="stream bare,64",
        way="one way",
    ),
    across(
        "queue stream, 4 KiB, per message",
        "stream 4096",
        faster(5),
        bare="stream bare,4096",
        way="one way",
    ),
)

SEGMENT_LIFE = "get, attach, touch, detach, remove"
SET_UP = (
    both(f"{SEGMENT_LIFE}, 4 KiB", "segment 4096", within(1, KERNEL)),
    both(f"{SEGMENT_LIFE}, 1 MiB", "segment 1048576", within(1, KERNEL)),
    both("buffer mapped twice in a row, 64 KiB", "doubled 65536", within(1, KERNEL)),
    lookup("look-up by key, 100,000 IPC objects", 0),
    lookup("attach and detach, 100,000 IPC objects", 1),
    lookup("semop twice, 100,000 IPC objects", 2),
)

FORK = "fork, exit and wait"
LIVES = (
    both(f"{FORK}, no call made", "process plain", within(1.05, KERNEL)),
    both(f"{FORK}, a semaphore used before", "process used", within(1.05, KERNEL)),
    both(f"{FORK}, a segment attached", "process attached", within(1.2, KERNEL)),
    both("fork, exec of another program and wait", "process exec", within(1.05, KERNEL)),
    both("the first call of a process", "process first", Wanted(absolute=500_000)),
    memory("memory of a process that has called, its own", 0),
    memory("memory of a process that has called, with what it shares", 1),
)


def crowds(name: str, word: str, factor: float, sizes: tuple[int, ...]) -> tuple[Case, ...]:
    """So many processes on each core that all use the same."""
    return tuple(
        both(
            f"{name}, {n} process{'es' if n > 1 else ''} per core",
            f"crowd {word},{n}",
            within(factor, KERNEL),
        )
        for n in sizes
    )


def fair(name: str, word: str, n: int) -> Case:
    """What a fair share is of the least that a process of a crowd gets."""
    command = f"crowd {word},{n},long"
    return Case(
        SUITE,
        f"{name}, {n} processes per core: fair share over the least",
        NATIVE,
        (ipcbench(KERNEL, command, line=1), vshmem(command, line=1)),
        unit="x",
        once=True,
        wanted=(Wanted(absolute=2),),
    )


SHARED = (
    ("mutex", "mutex"),
    ("mutex, SEM_UNDO", "undo"),
    ("two of a set at once", "set"),
    ("64 B queue", "queue"),
)
CROWDS = (
    *(case for name, word in SHARED for case in crowds(name, word, 1, (1, 2, 4, 8))),
    *crowds("token ring", "ring", 1.3, (1, 2, 8)),
    *(fair(name, word, n) for name, word in SHARED for n in (2, 8)),
)

WAITING = (
    both("answer of a process that slept 3 ms", "sleeper wake", within(1.3, KERNEL)),
    *(
        both(
            f"processor time of a waiting {name}",
            f"sleeper {word}",
            Wanted(absolute=1000),
            once=True,
            unit="us/s",
        )
        for name, word in (("P", "semaphore"), ("msgrcv", "queue"))
    ),
)


def methods(runner: str, prefix: str, *, ours: bool) -> tuple[Contender, ...]:
    """Messages by a segment with semaphores, and by queues."""
    names = (("segment", SEGMENT), ("queue", "queues"))
    return tuple(Contender(f"{prefix}{name}", runner, (w,), vshmem=ours) for w, name in names)


NETWORK = tuple(Contender(word.upper(), "network", (word,)) for word in ("tcp", "udp"))
LOOPBACK = tuple(Contender(word.upper(), "loopback", (word,)) for word in ("tcp", "udp"))


def bare(runner: str) -> Contender:
    """Two words of shared memory, on which both processes spin."""
    return Contender(FLOOR, runner, ("bare",), floor=True)


MESSAGES = tuple(
    Case(
        SUITE,
        "Sync with a payload",
        where,
        (bare(runners[0]), *methods(runners[-1], OURS, ours=True), *others),
        PAYLOADS,
        way=THERE_AND_BACK,
        # Between emulated machines hardly any repetition is steady.
        across=where in (NATIVE, "containers"),
        papers=papers(where),
    )
    for where, runners, others in (
        (NATIVE, ("pair", "pair, Vshmem"), (*methods("pair", KERNELS, ours=False), *LOOPBACK)),
        ("containers", ("containers",), ()),
        ("host-guest", ("host and guest",), ()),
        (GUESTS, ("guests",), NETWORK),
    )
)

BANDWIDTH = Case(
    SUITE,
    "bandwidth",
    NATIVE,
    tuple(
        Contender(f"{prefix}{name}", runner, (word, "bandwidth", "{size}"), vshmem=ours)
        for prefix, runner, ours in ((OURS, "channel, Vshmem", True), (KERNELS, "channel", False))
        for word, name in (("segment", SEGMENT), ("queue", "queues"))
    ),
    (8, 512, 4096, 65536, 1 << 20, 64 << 20),
    unit="MB/s",
    way=ONE_WAY,
)

# From when a message was due, however long the one before took.
AT_A_RATE = Case(
    SUITE,
    "a message each 100 µs, from when it was due",
    NATIVE,
    (
        bare("pair"),
        *methods("pair at a rate, Vshmem", OURS, ours=True),
        *methods("pair at a rate", KERNELS, ours=False),
    ),
    (8,),
    way=THERE_AND_BACK,
    across=True,
)


def sync(where: str, runner: str, *others: Contender, wanted: tuple[Wanted, ...]) -> Case:
    """Semaphores back and forth, beside two words of the same memory."""
    contenders = (
        bare(runner),
        Contender(VSHMEM, runner, ("semaphore",), vshmem=True),
        *others,
    )
    name, more = "Sync: semaphore ping-pong", {"wanted": wanted, "papers": papers(where)}
    return Case(SUITE, name, where, contenders, (8,), way=THERE_AND_BACK, across=True, **more)


SEGMENT_IN_A_MACHINE = tuple(
    Case(
        SUITE,
        f"{SEGMENT_LIFE}, {name}",
        "guest",
        (
            Contender(KERNEL, "ipcbench in a machine", ("segment", str(size))),
            Contender(VSHMEM, "ipcbench in a machine, Vshmem", ("segment", str(size)), vshmem=True),
        ),
        wanted=(within(1, KERNEL),),
    )
    for name, size in (("4 KiB", 4096), ("1 MiB", 1 << 20))
)

ELSEWHERE = (
    *SEGMENT_IN_A_MACHINE,
    sync("containers", "containers", wanted=(within(2.5, FLOOR),)),
    sync("host-guest", "host and guest", wanted=(within(2.5, FLOOR),)),
    sync(
        GUESTS,
        "guests",
        NETWORK[0],
        wanted=(within(2.5, FLOOR), faster(300, "TCP")),
    ),
    Case(
        SUITE,
        "semaphore ping-pong, both asleep",
        GUESTS,
        (
            Contender("doorbell by the driver itself", "wakeup", ("bell",)),
            Contender(VSHMEM, "wakeup", ("woken",), vshmem=True),
        ),
        (8,),
        way=THERE_AND_BACK,
        wanted=(within(1.5, "doorbell by the driver itself"),),
    ),
)

BY_IPCBENCH = (*UNCONTENDED, *ACROSS, *SET_UP, *LIVES, *CROWDS, *WAITING)
CASES = (*BY_IPCBENCH, *MESSAGES, BANDWIDTH, AT_A_RATE, *ELSEWHERE)
