"""The suites by name."""

from __future__ import annotations

from vshmem_lab.model import Case
from vshmem_lab.suites import (
    algebra,
    bigdata,
    cores,
    dwarfs,
    hypervisors,
    mpi,
    programs,
    rivals,
    sharing,
    sync,
    vsuite,
    xen,
)

ALL = (
    *(sharing, sync, rivals, mpi, dwarfs, cores, algebra, hypervisors, programs, vsuite, bigdata),
    xen,
)
SUITES: dict[str, tuple[Case, ...]] = {suite.SUITE: suite.CASES for suite in ALL}
ABOUT = {suite.SUITE: suite.__doc__.splitlines()[0].split(": ", 1)[1].rstrip(".") for suite in ALL}
