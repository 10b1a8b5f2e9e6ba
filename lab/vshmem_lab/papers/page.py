"""docs/papers.md, made of these rows and of the kept runs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from vshmem_lab import analysis, paths, quiet
from vshmem_lab.analysis import Line, Table
from vshmem_lab.model import Failed
from vshmem_lab.papers.model import ALIKE, Claim, Paper, Row, Value
from vshmem_lab.papers.table import ALL
from vshmem_lab.report import kernels
from vshmem_lab.report.papers import PAPERS as TITLES
from vshmem_lab.stats import FEWEST
from vshmem_lab.store import ABOUT
from vshmem_lab.text import quantity

PAGE, RESULTS = Path("docs") / "papers.md", Path("docs") / "results"
# Medians that differ by no more are alike, whatever the intervals say.
CLOSE = 1.1
SAME, OTHER, HIDDEN, FEW, MIXED = "same", "different", "within noise", "too few runs", "emulated"
HEAD = """\
# The papers' tables and figures

Made by `vshmem lab docs` of the rows in `lab/vshmem_lab/papers` and of kept runs; nobody writes
here. Each table and figure of the five papers has a row: what the paper found, what the newest kept
run has of it, how to measure it again, and why today's is something else, or why there is none.
Papers' figures are those of their machines, mostly of before 2012; they are context, and no times
to be beaten.

*found again* is counted from the run: *same* or *different* is what the paper found of two values,
faster (beyond both intervals of 95 %) or alike (within a tenth, or within them). *too few runs* are
fewer than {few}; *emulated* says that one of both was, and that they can't be compared. No word:
the row only shows values. Of † no quiet machine has measured the run ([the
rule](../lab/README.md#kept-runs)).
"""


class Kept:
    """The kept runs: each case of the newest run that has it, by date in its name."""

    def __init__(self, root: Path = paths.ROOT) -> None:
        self._root = root
        self._abouts = {
            path.parent.name: json.loads(path.read_text())
            for path in sorted((root / RESULTS).glob(f"*/{ABOUT}"))
        }
        self._newest = {
            (case["suite"], case["case"], case["environment"]): name
            for name, about in self._abouts.items()
            for case in about["cases"]
        }
        self._tables: dict[tuple[str, str, str], Table | None] = {}

    def result(self, value: Value) -> str:
        """The run that has it, or nothing."""
        return self._newest.get(value.key, "")

    def newest(self, case: tuple[str, str, str]) -> tuple[Path, dict] | None:
        """The folder of the newest run that has a case, and how it was then; None if none has."""
        name = self._newest.get(case)
        if name is None:
            return None
        cases = self._abouts[name]["cases"]
        was = next(x for x in cases if (x["suite"], x["case"], x["environment"]) == case)
        return self._root / RESULTS / name, was

    def quiet(self, result: str) -> bool:
        """Whether a run had the machine for itself."""
        return not quiet.refusals(self._abouts[result])

    def line(self, value: Value) -> Line | None:
        """What was measured."""
        table = self.table(value)
        lines = table.lines if table else ()
        fits = (x for x in lines if x.contender == value.contender and x.summary)
        return next((x for x in fits if x.size == value.size), None)

    def table(self, value: Value) -> Table | None:
        """Its case."""
        name = self.result(value)
        if name and value.key not in self._tables:
            run = analysis.load(self._root / RESULTS / name, {value.key})
            self._tables[value.key] = next(iter(run.tables), None)
        return self._tables.get(value.key)


def judged(claim: Claim, kept: Kept) -> str:
    """Whether a run has what the paper found; nothing where it has not both values."""
    one, other = kept.line(claim.one), kept.line(claim.other)
    if one is None or other is None:
        return ""
    if (one.accelerator == "tcg") != (other.accelerator == "tcg"):
        return MIXED
    if min(one.summary.count, other.summary.count) < FEWEST:
        return FEW
    overlap = one.summary.low <= other.summary.high and other.summary.low <= one.summary.high
    ratio = one.summary.median / other.summary.median
    if claim.kind == ALIKE:
        return SAME if overlap or 1 / CLOSE <= ratio <= CLOSE else OTHER
    if overlap:
        return HIDDEN
    table = kept.table(claim.one)
    return SAME if (ratio > 1) == table.more_is_better else OTHER


def verdict(row: Row, kept: Kept) -> str:
    """All of a row's claims in a word, or each if they differ."""
    found = [judged(claim, kept) for claim in row.claims]
    counted = {word: found.count(word) for word in dict.fromkeys(found) if word}
    if len(counted) == 1:
        return next(iter(counted))
    return ", ".join(f"{word} ({count})" for word, count in counted.items())


def check(papers: Iterable[Paper] = ALL, kept: Kept | None = None) -> list[str]:
    """What is wrong: rows with neither a run nor a reason, items without a row, or with two."""
    kept = kept or Kept()
    return [said for paper in papers for said in _wrong(paper, kept)]


def _wrong(paper: Paper, kept: Kept) -> Iterator[str]:
    items = [row.item for row in paper.rows]
    for item in dict.fromkeys([*paper.items, *items]):
        count = items.count(item)
        if count != 1 or item not in paper.items:
            among = "" if item in paper.items else ", which is not among its items"
            yield f"Paper {paper.number} has {count} rows of {item}{among}."
    for row in paper.rows:
        has = any(kept.line(value) for value in row.values)
        if not has and not row.missing:
            yield f"Paper {paper.number}, {row.item}: there is neither a kept run nor a reason."
        if has and row.rerun is None:
            yield f"Paper {paper.number}, {row.item}: no command measures it again."


def text(papers: Iterable[Paper] = ALL, kept: Kept | None = None) -> str:
    """The page."""
    kept = kept or Kept()
    parts = [HEAD.format(few=FEWEST)]
    for paper in papers:
        heads = ("", "what", "the paper", "here", "found again", "measured by", "what differs")
        rows = sorted(paper.rows, key=lambda row: paper.items.index(row.item))
        parts += [
            f"## Paper {paper.number}",
            "",
            textwrap.fill(f"{TITLES[paper.number]}.", 100),
            "",
        ]
        parts += [_cells(heads), _cells(["---"] * len(heads))]
        parts += [_row(row, kept) for row in rows]
        parts += [""]
    return "\n".join(parts)


def _row(row: Row, kept: Kept) -> str:
    has = [(value, line) for value in row.values if (line := kept.line(value))]
    shown = [_shown(value, line, kept) for value, line in has]
    results = dict.fromkeys(kept.result(value) for value, _ in has)
    links = [_link(name, kept) for name in results]
    by = "<br>".join([*([f"`{row.rerun.command}`"] if row.rerun else []), *links])
    named = dict.fromkeys(kernels.of(line.placement) for _, line in has)
    by_kernel = [f"OpenBLAS took its kernel for {name}." for name in named if name]
    differs = " ".join(part for part in ("" if has else row.missing, row.why, *by_kernel) if part)
    return _cells(
        [row.item, row.subject, row.found, "<br>".join(shown), verdict(row, kept), by, differs]
    )


def _shown(value: Value, line: Line, kept: Kept) -> str:
    median = quantity(line.summary.median, kept.table(value).unit)
    emulated = " (emulated)" if line.accelerator == "tcg" else ""
    sized = f", {line.sized}" if line.size else ""
    return f"{value.name}{sized}: {median}{emulated}"


def _link(name: str, kept: Kept) -> str:
    mark = "" if kept.quiet(name) else " †"
    return f"[{name}](results/{name}/report.txt){mark}"


def _cells(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |".replace("  ", " ")


def fill(root: Path = paths.ROOT) -> list[Path]:
    """Writes the page; it, if that changed it. Raises Failed if a row has no run and no reason."""
    kept = Kept(root)
    wrong = check(ALL, kept)
    if wrong:
        raise Failed(" ".join(wrong))
    page, made = root / PAGE, text(ALL, kept)
    if page.exists() and page.read_text() == made:
        return []
    page.write_text(made)
    return [page]
