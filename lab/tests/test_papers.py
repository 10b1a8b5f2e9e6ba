"""The page of the papers' tables and figures is made of kept runs; a row has a run or a reason."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
from fakes import OURS, THEIRS, Fake, Silent, Store, about, all_fake, case
from test_report import Emulated, noisy
from vshmem_lab import cli, paths
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver
from vshmem_lab.model import Case
from vshmem_lab.papers import page
from vshmem_lab.papers.model import Paper, Rerun, Row, Value, alike, drawing, faster
from vshmem_lab.report import docs

VSHMEM, KERNEL = (
    Value(name, "toys", "ping", "native", name, 8) for name in (OURS.name, THEIRS.name)
)
MEASURED = Row("table 1", "ping", "Vshmem first", Rerun("rivals"), (VSHMEM, KERNEL))


@pytest.fixture(scope="module")
def ours() -> page.Kept:
    """The kept runs of this checkout."""
    return page.Kept()


def test_the_page_is_what_rows_and_kept_runs_say(ours: page.Kept) -> None:
    assert page.text(kept=ours) == (paths.ROOT / page.PAGE).read_text(), "run lab/vshmem-lab docs"


def test_each_row_has_a_run_or_a_reason(ours: page.Kept) -> None:
    assert page.check(kept=ours) == []


def test_all_tables_and_figures_are_there() -> None:
    counts = {paper.number: len(paper.items) for paper in page.ALL}
    assert counts == {"000": 22, "001": 14, "002": 40, "003": 8, "004": 12}


def test_each_command_measures_something() -> None:
    for row in (row for paper in page.ALL for row in paper.rows if row.rerun):
        words = shlex.split(row.rerun.command)[2:]
        options = cli.parser().parse_args(words)
        chosen = (options.case, options.contender, options.environment, options.size)
        assert selected(Choice(tuple(options.suites), *map(tuple, chosen))), row.item


def kept(root: Path, repetitions: int = 12, name: str = "2026-01-01-toys", **values) -> page.Kept:
    """Kept runs with one more, of these contenders' values."""
    fakes = {k: v if isinstance(v, Fake) else Fake(alter=noisy(v)) for k, v in values.items()}
    cases: list[Case] = [case(sizes=(8,))]
    store = Store.create(root / "run" / name, about(cases, repetitions))
    Driver(all_fake(**fakes), store, repetitions, 0.1, Silent()).run(cases)
    docs.keep(root / "run" / name, name, root)
    return page.Kept(root)


def paper(*rows: Row) -> Paper:
    """A paper of these rows, and of no other items."""
    return Paper("004", tuple(row.item for row in rows), rows)


def test_a_row_without_run_and_reason_is_found(tmp_path: Path) -> None:
    nothing = page.Kept(tmp_path)
    assert page.check([paper(MEASURED)], nothing) == [
        "Paper 004, table 1: there is neither a kept run nor a reason."
    ]
    reason = dataclasses.replace(MEASURED, missing="There is no GPU.")
    assert page.check([paper(reason, drawing("figure 1", "a"))], nothing) == []
    assert page.check([paper(MEASURED)], kept(tmp_path)) == []


def test_a_run_that_lacks_what_a_row_wants_is_none(tmp_path: Path) -> None:
    other = dataclasses.replace(MEASURED, values=(dataclasses.replace(VSHMEM, contender="nobody"),))
    assert "neither a kept run" in page.check([paper(other)], kept(tmp_path))[0]


def test_items_without_a_row_and_with_two_are_found(tmp_path: Path) -> None:
    one = drawing("figure 1", "a")
    wrong = Paper("004", ("figure 1", "figure 2"), (one, one, drawing("figure 9", "b")))
    assert page.check([wrong], page.Kept(tmp_path)) == [
        "Paper 004 has 2 rows of figure 1.",
        "Paper 004 has 0 rows of figure 2.",
        "Paper 004 has 1 rows of figure 9, which is not among its items.",
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "claim", "word"),
    [
        (100.0, 200.0, faster, page.SAME),
        (200.0, 100.0, faster, page.OTHER),
        (100.0, 100.5, faster, page.HIDDEN),
        (100.0, 105.0, alike, page.SAME),
        (100.0, 200.0, alike, page.OTHER),
        (Emulated(alter=noisy(100.0)), 200.0, faster, page.MIXED),
    ],
)
def test_what_the_paper_found_is_judged(ours, theirs, claim, word: str, tmp_path: Path) -> None:
    row = dataclasses.replace(MEASURED, claims=(claim(VSHMEM, KERNEL),))
    assert page.verdict(row, kept(tmp_path, ours=ours, theirs=theirs)) == word


def test_few_runs_judge_nothing(tmp_path: Path) -> None:
    row = dataclasses.replace(MEASURED, claims=(faster(VSHMEM, KERNEL),))
    assert page.verdict(row, kept(tmp_path, repetitions=3)) == page.FEW


def test_the_newest_run_counts_and_one_that_was_disturbed_is_marked(tmp_path: Path) -> None:
    kept(tmp_path, ours=100.0)
    found = kept(tmp_path, name="2026-02-02-toys", ours=300.0)
    said = page.text([paper(MEASURED)], found)
    assert "Vshmem, 8 B: 300 ns" in said and "kernel, 8 B: 1.01" in said
    assert "[2026-02-02-toys](results/2026-02-02-toys/report.txt) |" in said
    about_it = tmp_path / docs.RESULTS / "2026-02-02-toys" / "run.json"
    about_it.write_text(about_it.read_text().replace('"load before": 0.1', '"load before": 9.1'))
    assert "report.txt) †" in page.text([paper(MEASURED)], page.Kept(tmp_path))
