"""The suite `programs`: real programs, unmodified, on the kernel's System V IPC and on Vshmem.

Their own operations are timed: requests, transactions, executions. The more of its time a program
spends otherwise, the less its IPC shows.
"""

from __future__ import annotations

from vshmem_lab.model import Case, Contender, Wanted
from vshmem_lab.suites.parts import KERNEL, VSHMEM, within

SUITE = "programs"
RUNNER, ON_VSHMEM = "program", "program, Vshmem"


def program(name: str, words: str, *wanted: Wanted) -> Case:
    """The same program on both; a value is the time of one of its operations."""
    command = tuple(words.split())
    contenders = (
        Contender(KERNEL, RUNNER, command),
        Contender(VSHMEM, ON_VSHMEM, command, vshmem=True),
    )
    return Case(
        SUITE, name, "native", contenders, wanted=wanted or (within(1, KERNEL),), warm=False
    )


CASES = (
    *(program(f"stress-ng --sem-sysv {n}, an operation", f"stress sem-sysv {n}") for n in (2, 8)),
    program("stress-ng --msg 16 with types, a message", "stress msg 16 --msg-types 10"),
    program(
        "stress-ng --shm-sysv 2, small, an operation",
        "stress shm-sysv 2 --shm-sysv-bytes 1m",
    ),
    program("AFL++, an execution", "afl", within(1 / 0.95, KERNEL)),
    program("uWSGI with ipcsem, a request", "uwsgi"),
    program("PostgreSQL (pgbench), a transaction", "pgbench", within(1 / 0.98, KERNEL)),
    program("Apache with sysvsem, a request", "apache"),
    program("fakeroot, a chown", "fakeroot"),
    program("Berkeley DB, a put or get", "berkeleydb"),
    program("MPICH over UCX sysv (NetPIPE), 64 B one way", "mpich", within(1.05, KERNEL)),
)
