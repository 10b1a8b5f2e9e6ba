"""What suites have besides their cases' tables."""

from __future__ import annotations

from vshmem_lab.analysis import Run
from vshmem_lab.report import hypervisors, vsuite
from vshmem_lab.report.model import Grid

SUPPLEMENTS = {one.SUITE: one.supplement for one in (hypervisors, vsuite)}


def of(run: Run, suite: str) -> list[Grid]:
    """The grids of a suite of a run."""
    return SUPPLEMENTS[suite](run) if suite in SUPPLEMENTS else []
