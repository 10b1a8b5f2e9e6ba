"""A run in a few sentences: how Vshmem stands against what it was compared with."""

from __future__ import annotations

from collections import Counter

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.stats import FEWEST

FASTER, SAME, SLOWER, UNKNOWN = "better", "no different", "worse", "unknown"


def conclusion(run: Run) -> list[str]:
    """The sentences; none of a run without Vshmem."""
    found = Counter(
        judged for table in run.tables for line in table.lines if (judged := _judged(table, line))
    )
    out = []
    compared = found[FASTER] + found[SAME] + found[SLOWER]
    if compared:
        out.append(
            f"Of {compared} comparisons with other means in the same turns, Vshmem is better in "
            f"{found[FASTER]}, worse in {found[SLOWER]}, and in {found[SAME]} there is no "
            "difference beyond noise."
        )
    if found[UNKNOWN]:
        out.append(
            f"{found[UNKNOWN]} comparisons had fewer than {FEWEST} repetitions, too few for a "
            "verdict."
        )
    kept, missed = run.limits()
    if kept + missed:
        out.append(f"Of {kept + missed} limits that Vshmem is to keep, it misses {missed}.")
    return out


def _judged(table: Table, line: Line) -> str:
    """How Vshmem compares with a line; nothing of its own lines, of floors, and of mere counts."""
    found = line.against
    if line.vshmem or line.floor or found is None or table.unit in ("", "B"):
        return ""
    if not any(one.vshmem for one in table.lines):
        return ""
    if not found.known:
        return UNKNOWN
    if not found.real:
        return SAME
    return SLOWER if table.beats(line) else FASTER
