"""Where scarce memory makes DGEMM slower, and what explains it: its matrices, and swapping."""

from __future__ import annotations

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.suites.algebra import PLENTIFUL, SCARCE, SUITE, SWAPPED
from vshmem_lab.text import memory

HEADING = "Where scarce memory makes DGEMM slower"
# So much of the rate with plentiful memory is as fast.
ENOUGH = 0.9
MATRICES = 3 * 8  # bytes by rows squared


def knees(run: Run) -> list[str]:
    """A sentence for each place where memory was scarce."""
    tables = {
        (table.case, table.environment): table for table in run.tables if table.suite == SUITE
    }
    found = []
    for (name, where), table in tables.items():
        swapped = tables.get((SWAPPED, where))
        if name == SCARCE and swapped is not None:
            found += _of(table, swapped)
    return found


def _lines(table: Table, contender: str) -> dict[int, Line]:
    return {x.size: x for x in table.lines if x.contender == contender and x.summary}


def _of(rates: Table, swapped: Table) -> list[str]:
    plentiful = _lines(rates, PLENTIFUL)
    (name,) = {line.contender for line in rates.lines} - {PLENTIFUL}
    scarce, out = _lines(rates, name), _lines(swapped, name)
    sizes = sorted(size for size in scarce if size in plentiful and size in out)
    if not sizes:
        return []
    share = {n: scarce[n].summary.median / plentiful[n].summary.median for n in sizes}
    slow = [n for n in sizes if all(share[m] < ENOUGH for m in sizes if m >= n)]
    swapping = [n for n in sizes if out[n].summary.median > 0]
    text = f"{rates.environment}, {name}: "
    if not slow:
        text += f"nowhere, up to {_size(sizes[-1])}"
    else:
        text += f"from {_size(slow[0])}, at {share[slow[0]]:.0%} of the rate"
        text += f"; {share[sizes[-1]]:.0%} with {_size(sizes[-1])}"
    if swapping:
        first = swapping[0]
        text += f". It is swapped from {_size(first)}: {memory(out[first].summary.median)} of it"
    return [f"{text} (medians of {scarce[sizes[-1]].summary.count})."]


def _size(rows: int) -> str:
    return f"{rows:,} rows, whose matrices have {memory(MATRICES * rows**2)}"
