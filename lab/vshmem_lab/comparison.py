"""What changed between two runs.

Absolute times of two runs differ with the machine's mood. So where both runs have another contender
beside Vshmem (the first that is no floor, or else the floor), Vshmem's time by its is compared,
repetition by repetition.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from vshmem_lab import analysis, stats, store
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.report.grid import Grid
from vshmem_lab.text import quantity


def compare(old: Path, new: Path) -> Grid:
    """A row for each of Vshmem's lines that both runs have."""
    before, after = analysis.load(old), analysis.load(new)
    samples = [pd.DataFrame(store.read_rows(folder)) for folder in (old, new)]
    out = Grid(
        f"{new.name} against {old.name}",
        ["case", "size", "old", "new", "change", "relative to", "relative change", "verdict"],
        [],
        emulated=before.emulated or after.emulated,
    )
    for table in after.tables:
        earlier = _same(before, table)
        if earlier is None:
            out.notes.append(f"Only in the new one: {table.title}.")
            continue
        for line in (line for line in table.lines if line.vshmem):
            past = next((x for x in earlier.lines if _key(x) == _key(line)), None)
            if past is None or past.summary is None or line.summary is None:
                out.notes.append(f"Not measured in both: {table.title}, {line.contender}.")
                continue
            out.rows.append(_row((earlier, past, samples[0]), (table, line, samples[1])))
    gone = [table for table in before.tables if _same(after, table) is None]
    out.notes += [f"Only in the old one: {table.title}." for table in gone]
    return out


def _key(line: Line) -> tuple[str, int]:
    return line.contender, line.size


def _same(run: Run, table: Table) -> Table | None:
    key = (table.suite, table.case, table.environment)
    return next((x for x in run.tables if (x.suite, x.case, x.environment) == key), None)


Side = tuple[Table, Line, pd.DataFrame]


def _row(old: Side, new: Side) -> list[str]:
    table, line, _ = new
    beside = _beside(old[0], new[0], line)
    ours = [_values(side, line) for side in (old, new)]
    found = change = stats.compare_runs(*ours)
    relative = ""
    if beside:
        ratios = [_ratios(side, line, beside) for side in (old, new)]
        if all(len(values) for values in ratios):
            found = stats.compare_runs(*ratios)
            relative = f"{found.ratio - 1:+.1%}"
    return [
        table.title + (f", {line.contender}" if line.contender != "Vshmem" else ""),
        line.sized,
        quantity(old[1].summary.median, table.unit),
        quantity(line.summary.median, table.unit),
        f"{change.ratio - 1:+.1%}",
        beside.contender if beside and relative else "",
        relative,
        _verdict(found, table.more_is_better),
    ]


def _verdict(found: stats.Difference, more_is_better: bool) -> str:
    if math.isnan(found.p):
        return "too few samples"
    if not found.real:
        return "no difference"
    return "better" if (found.ratio > 1) == more_is_better else "worse"


def _beside(old: Table, new: Table, line: Line) -> Line | None:
    """What Vshmem's time is taken by: something that both runs have, and that is not Vshmem."""
    past = {_key(x) for x in old.lines if x.summary}
    others = [x for x in new.lines if x.summary and not x.vshmem and _key(x) in past]
    others = [x for x in others if x.floor or x.size == line.size]
    return next(iter(sorted(others, key=lambda x: x.floor)), None)


def _samples(side: Side) -> pd.DataFrame:
    table, _, rows = side
    mine = rows[
        (rows["suite"] == table.suite)
        & (rows["case"] == table.case)
        & (rows["environment"] == table.environment)
    ].copy()
    for column in ("value", "size", "repetition"):
        mine[column] = pd.to_numeric(mine[column], errors="coerce")
    steady = mine[mine["steady"] == "True"]
    return steady if len(steady) else mine


def _values(side: Side, line: Line) -> np.ndarray:
    return analysis.by_repetition(_samples(side), *_key(line)).to_numpy()


def _ratios(side: Side, line: Line, beside: Line) -> np.ndarray:
    samples = _samples(side)
    ours, theirs = (analysis.by_repetition(samples, *_key(x)) for x in (line, beside))
    return (ours / theirs).dropna().to_numpy()
