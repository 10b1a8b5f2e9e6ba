"""The tables of the documentation, made from kept results.

A page says which rows it wants of which result, and has the table up to the end mark:

    <!-- lab RESULT SUITE
    CASE[, SIZE]
    -->
    <!-- lab end -->

The columns are the contenders of these cases. A result is a folder of docs/results.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from vshmem_lab import analysis, paths
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.model import Failed
from vshmem_lab.report.grid import text_of
from vshmem_lab.store import ABOUT, SAMPLES
from vshmem_lab.text import bytes_text, quantity, size

RESULTS = Path("docs") / "results"
MARKED = re.compile(r"(<!-- lab (\S+) (\S+)\n(.*?)-->\n).*?(<!-- lab end -->)", re.DOTALL)
ROW = re.compile(r"(.*?)(?:, (\d+[KM]?))?$")


def pages(root: Path = paths.ROOT) -> list[Path]:
    """The pages that may have tables."""
    return sorted([*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("lab/*.md")])


def filled(page: Path, root: Path = paths.ROOT) -> str:
    """A page's text, its tables as their results have them."""

    def table(found: re.Match) -> str:
        head, result, suite, rows, end = found.groups()
        folder = root / RESULTS / result
        if not folder.is_dir():
            raise Failed(f"{page.name} has a table of {RESULTS / result}, which does not exist.")
        run = analysis.load(folder)
        link = os.path.relpath(folder / "report.txt", page.parent)
        try:
            return f"{head}\n{_table(run, suite, rows.splitlines(), link)}\n{end}"
        except Failed as failure:
            raise Failed(f"{page.name}, a table of {result}: {failure}") from None

    return MARKED.sub(table, page.read_text())


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
    """Copies a run to the kept results; where it is then."""
    run = analysis.load(folder)
    if not run.about.get("complete"):
        raise Failed(f"{folder.name} is not complete. Go on with it: vshmem lab run --resume")
    kept = root / RESULTS / name
    if kept.exists():
        raise Failed(f"{RESULTS / name} exists. Choose another name.")
    kept.mkdir(parents=True)
    for file in (ABOUT, SAMPLES):
        shutil.copy(folder / file, kept / file)
    (kept / "report.txt").write_text(text_of(run))
    return kept


def _table(run: Run, suite: str, rows: list[str], link: str) -> str:
    wanted = [_case(run, suite, row) for row in rows]
    columns = dict.fromkeys(line.contender for table, _ in wanted for line in table.lines)
    ours = {line.contender for table, _ in wanted for line in table.lines if line.vshmem}
    heads = [f"**{name}**" if name in ours else name for name in columns]
    lines = [_row(["", *heads]), _row(["---", *["---:"] * len(heads)])]
    for table, length in wanted:
        label = f"{table.case}, {bytes_text(length)}" if length else table.case
        lines.append(_row([label, *(_cell(table, name, length) for name in columns)]))
    counts = sorted({table.repetitions for table, _ in wanted})
    medians = f"Medians of {' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))}"
    emulated = "; emulated machines" if any(table.emulated for table, _ in wanted) else ""
    on = run.about["machine"]["processor"]
    lines += ["", f"{medians} repetitions, on {on}{emulated}: [the whole run]({link}).", ""]
    return "\n".join(lines)


def _case(run: Run, suite: str, row: str) -> tuple[Table, int]:
    name, length = ROW.match(row.strip()).groups()
    length = size(length) if length else 0
    for table in run.tables:
        if (table.suite, table.case) == (suite, name) and _has(table, length):
            return table, length
    raise Failed(f"it has no {row.strip()} of the suite {suite}.")


def _has(table: Table, length: int) -> bool:
    return any(line.size == length for line in table.lines)


def _cell(table: Table, name: str, length: int) -> str:
    line = next((one for one in table.lines if _is(one, name, length)), None)
    if line is None:
        return ""
    return quantity(line.summary.median, table.unit) if line.summary else "missing"


def _is(line: Line, name: str, length: int) -> bool:
    return line.contender == name and (line.size == length or line.floor)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
