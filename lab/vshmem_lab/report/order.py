"""Whether the papers' order of models holds: System V ~ Vshmem <= OpenMP < MPI, by smaller gaps."""

from __future__ import annotations

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.text import times

HEADING = "The papers' order today: System V ~ Vshmem <= OpenMP < MPI, with gaps that close"
SUITE = "dwarfs"
MODELS = ("Vshmem", "System V", "OpenMP", "MPI")


def order(run: Run) -> list[str]:
    """A sentence for each dwarf of which all models have enough repetitions."""
    return [said for table in run.tables if table.suite == SUITE for said in _of(table)]


def _of(table: Table) -> list[str]:
    sizes: dict[int, dict[str, Line]] = {}
    for line in table.lines:
        if line.contender in MODELS and line.summary:
            sizes.setdefault(line.size, {})[line.contender] = line
    whole = [lines for lines in sizes.values() if len(lines) == len(MODELS) and _known(lines)]
    if not whole:
        return []
    same = sum(not lines["System V"].against.real for lines in whole)
    ahead = sum(not table.beats(lines["OpenMP"]) for lines in whole)
    last = sum(lines["MPI"].summary.low > lines["OpenMP"].summary.high for lines in whole)
    gaps = f"the slowest takes {_gap(whole[0])} times the fastest with {whole[0]['MPI'].sized}"
    if len(whole) > 1:
        gaps += f", {_gap(whole[-1])} times with {whole[-1]['MPI'].sized}"
    counted = f"of {len(whole)} sizes"
    return [
        f"{table.title}: no difference between System V and Vshmem in {same} {counted}; OpenMP not "
        f"faster than Vshmem in {ahead}; MPI slower than OpenMP in {last}; {gaps}"
    ]


def _known(lines: dict[str, Line]) -> bool:
    others = [line.against for line in lines.values() if not line.vshmem]
    return all(found is not None and found.known for found in others)


def _gap(lines: dict[str, Line]) -> str:
    medians = [line.summary.median for line in lines.values()]
    return times(max(medians) / min(medians))
