"""What the suite `hypervisors` has besides its cases: features, ranks, and the paper's of both."""

from __future__ import annotations

from collections.abc import Sequence

from vshmem_lab import stats
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.environments import PROBLEMS, SMALL_PROBLEMS
from vshmem_lab.features import papers, words
from vshmem_lab.report.model import EMULATED, Grid

SUITE = "hypervisors"
# Benchmark: how the names of its cases begin. The first five are those that the paper ranks.
BENCHMARKS = {
    "Linpack": "HPL",
    "FFT": "FFT",
    "bandwidth": "ping-pong bandwidth",
    "latency": "ping-pong latency",
    "OpenMP": "OpenMP",
    "DGEMM": "DGEMM",
    "STREAM": "STREAM",
    "PTRANS": "PTRANS",
    "RandomAccess": "RandomAccess",
}
RANKED = 5
WIDTH = 26  # of a cell in plain text
RULE = (
    "A rank is one more than the number of environments that are ahead: in most cases of the "
    "benchmark, by more than the 95 % intervals of both medians."
)


def supplement(run: Run) -> list[Grid]:
    """The grids of a run of this suite; none of another one."""
    found = features(run.about.get("features", {}))
    ranks = [*_ranks(run, emulated=False), *_ranks(run, emulated=True)]
    return found + ranks + ([_papers_ranks()] if ranks else [])


def features(columns: dict[str, words.Column]) -> list[Grid]:
    """What is installed says of itself, and the paper's comparison."""
    if not columns:
        return []
    head = ["feature", *columns]
    rows = [[row, *(_cell(column, row) for column in columns.values())] for row in words.ROWS]
    title = "Features, as what is installed here says"
    ours = Grid(title, head, rows, wrap=WIDTH)
    ours.notes = [
        f"{name} is missing: {column[words.MISSING]}"
        for name, column in columns.items()
        if words.MISSING in column
    ]
    ours.notes.append("A dash: it does not say.")
    theirs = [list(row) for row in papers.FEATURES]
    paper = Grid("Features in the paper", ["feature", *papers.HYPERVISORS], theirs, wrap=WIDTH)
    return [ours, paper]


def _cell(column: words.Column, row: str) -> str:
    return "missing" if words.MISSING in column else column.get(row) or "-"


def _ranks(run: Run, emulated: bool) -> list[Grid]:
    """Ranks of what is emulated, or of what is not: they are never compared."""
    largest = SMALL_PROBLEMS if emulated else list(PROBLEMS)[-1]
    other = set(PROBLEMS) - {largest}
    tables = [
        table for table in run.tables if table.suite == SUITE and table.environment not in other
    ]
    names = dict.fromkeys(
        line.contender
        for table in tables
        for line in table.lines
        if line.summary and (line.accelerator == "tcg") == emulated
    )
    rows = []
    for benchmark, begins in BENCHMARKS.items():
        cases = [table for table in tables if table.case.startswith(begins)]
        found = [rank(cases, name, list(names)) for name in names]
        rows.append([benchmark, *("-" if one is None else str(one) for one in found)])
    if len(names) < 2 or all(cell == "-" for row in rows for cell in row[1:]):
        return []
    totals = [_total([row[at] for row in rows[:RANKED]]) for at in range(1, len(names) + 1)]
    rows.insert(RANKED, ["total of these", *totals])
    title = "Ranks, 1 is the best"
    out = Grid(title, ["benchmark", *names], rows, emulated=emulated, wrap=WIDTH)
    out.notes = [*([EMULATED] if emulated else []), RULE]
    return [out]


def _total(cells: Sequence[str]) -> str:
    return "-" if "-" in cells else str(sum(map(int, cells)))


def rank(cases: Sequence[Table], name: str, names: Sequence[str]) -> int | None:
    """A contender's rank among these; None where it, or a case, has too few repetitions."""
    known = [table for table in cases if _line(table, name)]
    if not known or len(known) < len(cases):
        return None
    return 1 + sum(_ahead(known, other, name) for other in names if other != name)


def _line(table: Table, name: str) -> Line | None:
    """A contender's line, if it has enough repetitions for a verdict."""
    found = (line for line in table.lines if line.contender == name and line.summary)
    return next((line for line in found if line.summary.count >= stats.FEWEST), None)


def _ahead(cases: Sequence[Table], one: str, other: str) -> bool:
    """Whether one is better than the other in most cases, by more than their intervals."""
    score = 0
    for table in cases:
        mine, theirs = _line(table, one), _line(table, other)
        if mine is None or theirs is None:
            continue
        higher = mine.summary.low > theirs.summary.high
        lower = mine.summary.high < theirs.summary.low
        score += (higher - lower) * (1 if table.more_is_better else -1)
    return score * 2 > len(cases)


def _papers_ranks() -> Grid:
    rows = [list(row) for row in papers.RANKS]
    return Grid("Ranks in the paper, 1 is the best", ["benchmark", *papers.RANKED], rows)
