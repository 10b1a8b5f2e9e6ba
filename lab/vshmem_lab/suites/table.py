"""The suites by name."""

from __future__ import annotations

from vshmem_lab.model import Case
from vshmem_lab.suites import mpi, rivals, sharing, xen

SUITES: dict[str, tuple[Case, ...]] = {
    suite.SUITE: suite.CASES for suite in (sharing, rivals, mpi, xen)
}
ABOUT = {
    suite.SUITE: suite.__doc__.splitlines()[0].split(": ", 1)[1].rstrip(".")
    for suite in (sharing, rivals, mpi, xen)
}
