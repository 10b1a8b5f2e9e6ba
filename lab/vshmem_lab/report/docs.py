"""The tables of the documentation, made from kept results.

A page says which rows it wants of which result, and has the table up to the end mark:

    <!-- lab RESULT SUITE
    CASE[ in ENVIRONMENT][, SIZE]
    -->
    <!-- lab end -->

The columns are the contenders of these cases, but an earlier build of Vshmem. With "by contender"
after SUITE they are the rows, the cases are the columns, and another one says what each contender
lacks: a value that is better than Vshmem's is bold. A result is a folder of docs/results. What
`vshmem-lab beside` has kept in a file there, RESULT.json, is shown between `<!-- beside RESULT -->`
and the end mark.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from vshmem_lab import analysis, paths, quiet
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.model import Failed
from vshmem_lab.report import beside
from vshmem_lab.report.grid import text_of
from vshmem_lab.store import ABOUT, SAMPLES
from vshmem_lab.suites.parts import BEFORE
from vshmem_lab.text import bytes_text, quantity, size

RESULTS = Path("docs") / "results"
MARKED = re.compile(
    r"(<!-- lab (\S+) (\S+)( by contender)?\n(.*?)-->\n).*?(<!-- lab end -->)", re.DOTALL
)
BESIDE = re.compile(r"(<!-- beside (\S+) -->\n).*?(<!-- lab end -->)", re.DOTALL)
ROW = re.compile(r"(.*?)(?: in ([\w -]+))?(?:, (\d+[KM]?))?$")


def pages(root: Path = paths.ROOT) -> list[Path]:
    """The pages that may have tables."""
    return sorted([*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("lab/*.md")])


def filled(page: Path, root: Path = paths.ROOT) -> str:
    """A page's text, its tables as their results have them."""

    def table(found: re.Match) -> str:
        head, result, suite, turned, cases, end = found.groups()
        folder = root / RESULTS / result
        if not folder.is_dir():
            raise Failed(f"{page.name} has a table of {RESULTS / result}, which does not exist.")
        run = analysis.load(folder)
        link = os.path.relpath(folder / "report.txt", page.parent)
        try:
            wanted = [_case(run, suite, case) for case in cases.splitlines()]
            rows = _by_contender(wanted) if turned else _by_case(wanted)
            return "\n".join([head, *rows, "", _source(run, wanted, link), "", end])
        except Failed as failure:
            raise Failed(f"{page.name}, a table of {result}: {failure}") from None

    def others(found: re.Match) -> str:
        head, result, end = found.groups()
        return head + "\n".join([*beside.tables(root / RESULTS / f"{result}.json"), "", end])

    return BESIDE.sub(others, MARKED.sub(table, page.read_text()))


def fill(root: Path = paths.ROOT) -> list[Path]:
    """Fills the tables of all pages; those that were changed."""
    changed = []
    for page in pages(root):
        text = filled(page, root)
        if text != page.read_text():
            page.write_text(text)
            changed.append(page)
    return changed


def keep(folder: Path, name: str, root: Path = paths.ROOT) -> Path:
    """Copies a run to the kept results; where it is then. Refused if the machine was not quiet."""
    run = analysis.load(folder)
    found = quiet.refusals(run.about)
    if found:
        raise Failed(f"{folder.name} is not kept: {'; '.join(found)}.")
    kept = root / RESULTS / name
    if kept.exists():
        raise Failed(f"{RESULTS / name} exists. Choose another name.")
    kept.mkdir(parents=True)
    for file in (ABOUT, SAMPLES):
        shutil.copy(folder / file, kept / file)
    (kept / "report.txt").write_text(text_of(run, detailed=True))
    return kept


Wanted = list[tuple[Table, int]]  # cases and sizes


def _labels(wanted: Wanted) -> list[str]:
    """The cases' names and sizes; of cases that have one name, their environments, too."""
    environments: dict[str, set[str]] = {}
    for table, _ in wanted:
        environments.setdefault(table.case, set()).add(table.environment)
    return [
        ", ".join(
            [table.case]
            + [table.environment] * (len(environments[table.case]) > 1)
            + [bytes_text(length)] * bool(length)
        )
        for table, length in wanted
    ]


def _contenders(wanted: Wanted) -> dict[str, str]:
    """Their names, and as they are shown: Vshmem's in bold."""
    lines = [line for table, _ in wanted for line in table.lines]
    ours = {line.contender for line in lines if line.vshmem}
    names = dict.fromkeys(line.contender for line in lines if line.contender != BEFORE)
    return {name: f"**{name}**" if name in ours else name for name in names}


def _by_case(wanted: Wanted) -> list[str]:
    """A row a case, a column a contender."""
    columns = _contenders(wanted)
    lines = [_row(["", *columns.values()]), _row(["---", *["---:"] * len(columns)])]
    for label, (table, length) in zip(_labels(wanted), wanted, strict=True):
        lines.append(_row([label, *(_cell(table, name, length) for name in columns)]))
    return lines


def _by_contender(wanted: Wanted) -> list[str]:
    """A row a contender, a column a case, and what it lacks; a reason for each that is missing."""
    rows = [_row(["", *_labels(wanted), "lacks"]), _row(["---", *["---:"] * len(wanted), "---"])]
    missing = []
    for name, shown in _contenders(wanted).items():
        found = [(table, _find(table, name, length), length) for table, length in wanted]
        lines = [line for _, line, _ in found if line]
        cells = [_marked(table, line, _cell(table, name, length)) for table, line, length in found]
        rows.append(_row([shown, *cells, lines[0].lacks]))
        reasons = [line.error for line in lines if line.summary is None]
        missing += [f"{name}: {reasons[0].splitlines()[0].rstrip('.')}"] if reasons else []
    notes = [f"Missing: {'; '.join(missing)}."] if missing else []
    return [*rows, "", "Bold: better than Vshmem, by more than noise.", *notes]


def _marked(table: Table, line: Line | None, cell: str) -> str:
    return f"**{cell}**" if line and table.beats(line) else cell


def _source(run: Run, wanted: Wanted, link: str) -> str:
    """What the numbers are, and where the rest is."""
    counts = sorted({table.repetitions for table, _ in wanted})
    medians = f"Medians of {' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))}"
    emulated = "; emulated machines" if any(table.emulated for table, _ in wanted) else ""
    on = run.about["machine"]["processor"]
    return f"{medians} repetitions, on {on}{emulated}: [the whole run]({link})."


def _case(run: Run, suite: str, row: str) -> tuple[Table, int]:
    name, environment, length = ROW.match(row.strip()).groups()
    length = size(length) if length else 0
    for table in run.tables:
        fits = environment in (None, table.environment) and _has(table, length)
        if (table.suite, table.case) == (suite, name) and fits:
            return table, length
    raise Failed(f"it has no {row.strip()} of the suite {suite}.")


def _has(table: Table, length: int) -> bool:
    return any(line.size == length for line in table.lines)


def _find(table: Table, name: str, length: int) -> Line | None:
    return next((one for one in table.lines if _is(one, name, length)), None)


def _cell(table: Table, name: str, length: int) -> str:
    line = _find(table, name, length)
    if line is None:
        return ""
    return quantity(line.summary.median, table.unit) if line.summary else "missing"


def _is(line: Line, name: str, length: int) -> bool:
    return line.contender == name and (line.size == length or line.floor)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
