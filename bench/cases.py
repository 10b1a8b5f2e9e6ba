"""What is measured, what it is compared with, and what is wanted of it.

A case runs one `ipcbench` command on up to three sides: the floor (what the hardware gives,
native), the kernel's System V, and Vshmem (the same binary under the interposer). A command may
print several lines; each line is a row of the table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wanted:
    """A limit: Vshmem must take at most `factor` times what `of` takes, or `absolute` units."""

    of: str = ""  # "floor", "kernel", or "" for an absolute limit
    factor: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of a case's output."""

    name: str
    wanted: Wanted | None = None


@dataclass(frozen=True)
class Case:
    """One command and what it is compared with."""

    rows: tuple[Row, ...]
    command: str
    floor: str = ""  # the floor's command; empty: there is none
    floor_interposed: bool = False  # the floor is Vshmem too (few IPC objects against many)
    kernel: bool = True
    rival: str = ""  # what of the kernel's it is compared with, if not the same command there
    once: bool = False  # long and steady: one round is enough
    as_root: bool = False  # who may change its credentials: what it was is asked again and again
    across: bool = False  # between two processors: the floor tells how far apart they are
    unit: str = "ns"


def faster(times: float) -> Wanted:
    """Vshmem takes at most the kernel's time divided by `times`."""
    return Wanted(of="kernel", factor=1 / times)


def within(times: float, of: str) -> Wanted:
    """Vshmem takes at most `times` the time of the floor or the kernel."""
    return Wanted(of=of, factor=times)


def one(name: str, command: str, wanted: Wanted | None = None, **rest) -> Case:
    """A case of one row."""
    return Case((Row(name, wanted),), command, **rest)


MANY_SETS, MANY_SEGMENTS = 80_000, 20_000

CASES: tuple[Case, ...] = (
    one(
        "load and store, 64 KiB segment",
        "memory shm",
        within(1.05, "floor"),
        floor="memory mmap",
    ),
    one(
        "load and store, 64 MiB segment",
        "memory shm,large",
        within(1.05, "floor"),
        floor="memory mmap,large",
    ),
    one("P and V, uncontended", "semaphore plain", faster(8)),
    one("P and V, uncontended, SEM_UNDO", "semaphore undo", faster(8)),
    one("P and V, uncontended, mode 0666", "semaphore open", faster(8)),
    one("P and V, uncontended, 250th of a set", "semaphore many", faster(8)),
    one("P and V, uncontended, as root", "semaphore plain", as_root=True),
    one("send and receive, uncontended, 64 B", "queue 64", faster(8)),
    one("send and receive, uncontended, 1 KiB", "queue 1024", faster(5)),
    one(
        "semaphore ping-pong across cores",
        "handover semaphore",
        within(2.5, "floor"),
        floor="handover bare",
        across=True,
    ),
    one(
        "semaphore ping-pong across cores, as root",
        "handover semaphore",
        floor="handover bare",
        as_root=True,
        across=True,
    ),
    one(
        "64 B queue ping-pong across cores",
        "handover queue",
        within(4, "floor"),
        floor="handover bare",
        across=True,
    ),
    one(
        "64 B ping-pong, one queue, two types",
        "handover types",
        floor="handover bare",
        across=True,
    ),
    *(
        one(
            f"64 B ping-pong by queue, kernel: {name}",
            "handover queue",
            rival=f"handover {word}",
            floor="handover bare",
            across=True,
        )
        for name, word in (
            ("POSIX queue", "mqueue"),
            ("pipe", "pipe"),
            ("Unix socket", "unix"),
            ("TCP", "tcp"),
        )
    ),
    one(
        "semaphore ping-pong, kernel: POSIX",
        "handover semaphore",
        rival="handover posix",
        floor="handover bare",
        across=True,
    ),
    one(
        "queue stream, 64 B, per message",
        "stream 64",
        faster(8),
        floor="stream bare,64",
        across=True,
    ),
    one(
        "queue stream, 4 KiB, per message",
        "stream 4096",
        faster(5),
        floor="stream bare,4096",
        across=True,
    ),
    one("get, attach, touch, detach, remove, 4 KiB", "segment 4096", within(1, "kernel")),
    one("get, attach, touch, detach, remove, 1 MiB", "segment 1048576", within(1, "kernel")),
    Case(
        (
            Row("look-up by key, 100,000 IPC objects", within(1.5, "floor")),
            Row("attach and detach, 100,000 IPC objects", within(1.5, "floor")),
            Row("semop twice, 100,000 IPC objects", within(1.5, "floor")),
        ),
        f"lookup {MANY_SETS},{MANY_SEGMENTS}",
        floor="lookup 10,10",
        floor_interposed=True,
        kernel=False,
    ),
    one("mutex, 2 processes per core", "crowd mutex,2", within(1.3, "kernel")),
    one("mutex, 8 processes per core", "crowd mutex,8", within(1.3, "kernel")),
    one("token ring, 2 processes per core", "crowd ring,2", within(1.3, "kernel")),
    one("token ring, 8 processes per core", "crowd ring,8", within(1.3, "kernel")),
    one("answer of a process that slept 3 ms", "sleeper wake", within(1.3, "kernel")),
    one(
        "processor time of a waiting P",
        "sleeper semaphore",
        Wanted(absolute=1000),
        once=True,
        unit="us/s",
    ),
    one(
        "processor time of a waiting msgrcv",
        "sleeper queue",
        Wanted(absolute=1000),
        once=True,
        unit="us/s",
    ),
)
