"""Which of its kernels OpenBLAS took: a cause for its speed, for each is of a kind of processor."""

from __future__ import annotations

import re

from vshmem_lab.analysis import Run

HEADING = "Which of its kernels OpenBLAS took"
NOTE = "OpenBLAS's kernel for {}"
_NOTED = re.compile(NOTE.format(r"(\w+)"))


def of(placement: str) -> str:
    """The processor whose kernel it is; nothing where that was not told."""
    found = _NOTED.search(placement)
    return found[1] if found else ""


def kernels(run: Run) -> list[str]:
    """A sentence for each place in which it was asked."""
    lines = ((table.environment, line) for table in run.tables for line in table.lines)
    found = dict.fromkeys((place, of(line.placement)) for place, line in lines)
    return [f"{place}: that for {kernel}." for place, kernel in found if kernel]
