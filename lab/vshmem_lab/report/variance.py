"""Whether Vshmem varies less than what it was compared with, as in paper 004: a counted heading."""

from __future__ import annotations

from collections.abc import Iterable

from vshmem_lab.analysis import Line, Run, Table

CLAIM = "Paper 004: Vshmem varies less than System V and sockets"


def varies(run: Run) -> list[str]:
    """A sentence for each other contender of a case whose variances were compared."""
    return [said for table in _tables(run) for said in _of(table)]


def heading(run: Run) -> str:
    """In how many places that is so, and in how many the contrary is."""
    lines = [line for table in _tables(run) for line in _compared(table)]
    return f"{CLAIM}: {_count(lines)}"


def _tables(run: Run) -> Iterable[Table]:
    return (table for table in run.tables if table.spread)


def _compared(table: Table) -> list[Line]:
    return [x for x in table.lines if x.spread and x.spread.known and not x.vshmem and not x.floor]


def _of(table: Table) -> list[str]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in _compared(table):
        found.setdefault((line.contender, line.reference), []).append(line)
    return [
        f"{table.title}: {ours} against {theirs}: {_count(lines)}"
        for (theirs, ours), lines in found.items()
    ]


def _count(lines: list[Line]) -> str:
    less = sum(x.spread.real and x.spread.ratio > 1 for x in lines)
    more = sum(x.spread.real and x.spread.ratio < 1 for x in lines)
    said = [f"so in {less} of {len(lines)} comparisons"]
    said += [f"the contrary in {more}"] if more else []
    rest = len(lines) - less - more
    said += [f"no difference beyond chance in {rest}"] if rest else []
    return ", ".join(said)
