"""The documentation's tables are what kept results say."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
from fakes import OURS, THEIRS, Fake, Silent, about, all_fake, case, finder
from vshmem_lab import analysis, paths
from vshmem_lab.driver import Driver
from vshmem_lab.model import Contender, Failed, Missing
from vshmem_lab.report import docs
from vshmem_lab.report.papers import PAPERS
from vshmem_lab.store import Store
from vshmem_lab.suites.table import SUITES
from vshmem_lab.text import size

TIME = re.compile(r"([\d.,]+) (?:ns|µs|ms|s)")
# In text: with its unit, as settings are times, too.
NUMBER, UNIT = r"(?<![\d.,])(\d[\d.,]*)", r"(ns|µs|ms|[KMG]i?B/s|[MG]flop/s)(?!\w)"
SAID = re.compile(f"{NUMBER} +{UNIT}")
TWO = re.compile(f"{NUMBER}(?: to | and | or |-)([\\d.,]+) +{UNIT}")
CODE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)  # what commands say, for example
# Times that are settings, or limits of others'.
SETTINGS = {
    ("2", "ms"),  # a process that waits for long looks so often
    ("10", "ms"),  # the back end waits so long for a lock
    ("20", "ms"),  # a queue goes on without a member that has been stopped for so long
    ("10", "ns"),  # the unit in which a waiter counts
    ("200", "µs"),  # KVM polls for so long
    ("1", "ns"),  # the least slack of a timer
    ("70", "µs"),  # tuned lets cores take no longer to wake
}
PAGE = """Before.

<!-- lab once toys
ping, 8
ping, 1K
-->
| what was | typed in |
<!-- lab end -->

After.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a kept result and a page."""
    cases = [case(sizes=(8, 1024))]
    kept = Store.create(tmp_path / "run", about(cases))
    Driver(all_fake(theirs=Fake()), kept, 2, 0.1, Silent()).run(cases)
    docs.keep(tmp_path / "run", "once", tmp_path)
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    return tmp_path


def test_every_table_of_the_documentation_is_what_its_result_says() -> None:
    for page in docs.pages():
        assert docs.filled(page) == page.read_text(), f"{page.name}: run lab/vshmem-lab docs"


def test_the_readme_is_among_the_pages() -> None:
    assert {"README.md", "guide-mpi.md"} <= {page.name for page in docs.pages()}


ROW = re.compile(r"^\| `(\w+)` \|(.*\(\.\./docs/results/\S+/report\.txt\).*)\|$", re.MULTILINE)
KEPT = re.compile(r"\(\.\./docs/results/(\S+?)/report\.txt\)")


def test_kept_runs_are_those_that_the_lab_names() -> None:
    page = (paths.LAB / "README.md").read_text()
    named = [(suite, folder) for suite, row in ROW.findall(page) for folder in KEPT.findall(row)]
    for suite, folder in named:
        run = analysis.load(paths.ROOT / docs.RESULTS / folder)
        assert {table.suite for table in run.tables} == {suite}
    folders = {path.name for path in (paths.ROOT / docs.RESULTS).iterdir() if path.is_dir()}
    assert folders == {folder for _, folder in named}


def test_the_table_of_rivals_that_the_lab_describes_can_be_made() -> None:
    page = (paths.LAB / "README.md").read_text()
    (asked,) = re.findall(r"<!-- lab DATE-rivals rivals by contender\n(.*?)-->", page, re.DOTALL)
    sizes = {one.name: one.sizes for one in SUITES["rivals"]}
    for name, _, length in (docs.ROW.match(line).groups() for line in asked.splitlines()):
        assert size(length) in sizes[name]


def figures_typed_in(page: str) -> list[str]:
    """Times in cells of tables that are not made from a result."""
    rest = docs.MARKED.sub("", page)
    cells = [cell for line in rest.splitlines() if line[:1] == "|" for cell in line.split("|")]
    return [found[1] for cell in cells if (found := TIME.fullmatch(cell.strip(" *")))]


def kept_texts(page: str) -> str:
    """The results before the lab, which are texts, that a page refers to."""
    links = re.findall(r"\(docs/(results/\S+?\.txt)\)", page)
    return "\n".join((paths.ROOT / "docs" / link).read_text() for link in links)


def test_times_in_the_readme_that_are_typed_in_are_those_of_a_result_that_it_names() -> None:
    page = (paths.ROOT / "README.md").read_text()
    said = set(re.findall(r"[\d,.]+", kept_texts(page)))
    assert set(figures_typed_in(page)) <= said


def figures_in_text(page: str) -> set[tuple[str, str]]:
    """Times and rates that a page has anywhere, but in tables that are made from a result."""
    made = docs.BESIDE.sub("", docs.MARKED.sub("", page))
    text = CODE.sub("", made).replace("\n", " ")
    return set(SAID.findall(TWO.sub(r"\1 \3, \2 \3", text))) - SETTINGS


def written() -> list[Path]:
    """All that documents the product, but changes, and what papers say (test_papers.py)."""
    pages = [*docs.pages(), *paths.ROOT.glob("docs/man/*"), *paths.ROOT.glob("examples/*.md")]
    return [page for page in pages if page.name not in ("CHANGELOG.md", "papers.md")]


@pytest.mark.parametrize("page", written(), ids=lambda page: page.name)
def test_times_in_the_text_of_a_page_are_those_of_a_result_that_it_names(page: Path) -> None:
    text = page.read_text()
    prose = "\n".join(line for line in text.splitlines() if line[:1] != "|")
    asked = prose if page == paths.ROOT / "README.md" else text
    kept = [_in_least_unit(*found) for found in SAID.findall(kept_texts(text))]
    for number, unit in figures_in_text(asked):
        # As many digits as are said.
        half = _in_least_unit("5", unit)[0] / 10 ** (len(number.partition(".")[2]) + 1)
        wanted, kind = _in_least_unit(number, unit)
        near = (abs(value - wanted) <= half * 1.0001 for value, of in kept if of == kind)
        assert any(near), f"{number} {unit}"


def test_the_readme_has_times_in_its_text() -> None:
    assert len(figures_in_text((paths.ROOT / "README.md").read_text())) > 3


LEAST = {"ns": (1, "ns"), "µs": (1e3, "ns"), "ms": (1e6, "ns")}


def _in_least_unit(number: str, unit: str) -> tuple[float, str]:
    """A figure, times in nanoseconds, and its unit."""
    factor, least = LEAST.get(unit, (1, unit))
    return float(number.rstrip(",.").replace(",", "")) * factor, least


def test_a_time_in_a_sentence_is_found() -> None:
    found = figures_in_text("It takes 1.3 µs, looks every 2 ms\nand 1,566 ns of 7 machines.")
    assert found == {("1.3", "µs"), ("1,566", "ns")}
    assert figures_in_text("5 to 7 µs, 1-3 GB/s") == {
        ("5", "µs"),
        ("7", "µs"),
        ("1", "GB/s"),
        ("3", "GB/s"),
    }
    assert not figures_in_text("```\n$ measure\n7 ns\n```\n")
    assert not figures_in_text("<!-- lab a b\nc\n-->\nIn 1 ns.\n<!-- lab end -->")


def test_a_time_that_is_typed_in_is_found() -> None:
    assert figures_typed_in("| a | 1,234 ns |\n| b | **5 µs** | 2 times | of 7 ns |\n") == [
        "1,234",
        "5",
    ]
    assert figures_typed_in("<!-- lab a b\nc\n-->\n| a | 1 ns |\n<!-- lab end -->") == []


def test_a_table_is_made_from_its_result(root: Path) -> None:
    page = root / "docs" / "page.md"
    assert docs.fill(root) == [page] and docs.fill(root) == []
    text = page.read_text()
    assert "| ping, 8 B | 108 ns | 1.01 µs |" in text and "typed in" not in text
    assert "|  | **Vshmem** | kernel |" in text
    assert "Medians of 2 repetitions, on a toy: [the whole run](results/once/report.txt)." in text
    assert text.startswith("Before.\n") and text.endswith("\nAfter.\n")
    assert (root / "docs" / "results" / "once" / "report.txt").exists()


def test_a_table_by_contender_says_what_they_lack_and_which_are_better(tmp_path: Path) -> None:
    rivals = [dataclasses.replace(THEIRS, name=name, lacks=name[0]) for name in ("fast", "slow")]
    gone = Contender("gone", "gone", (), lacks="all")
    cases = [case(OURS, *rivals, gone, sizes=(8,)), case(OURS, rivals[1], name="pong")]
    slow = {"Vshmem": 100.0, "fast": 50.0, "slow": 1000.0}
    theirs = Fake(alter=lambda turn, _: slow[turn.contender.name])
    find = finder(ours=Fake(), theirs=theirs, gone=Missing("It is not installed."))
    Driver(find, Store.create(tmp_path / "run", about(cases, 12)), 12, 0.1, Silent()).run(cases)
    docs.keep(tmp_path / "run", "once", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.write_text("<!-- lab once toys by contender\nping, 8\npong\n-->\n<!-- lab end -->\n")
    docs.fill(tmp_path)
    text = page.read_text()
    assert "|  | ping, 8 B | pong | lacks |\n| --- | ---: | ---: | --- |" in text
    assert "| **Vshmem** | 108 ns | 100 ns |  |" in text
    assert "| fast | **50 ns** |  | f |" in text
    assert "| slow | 1 µs | 1 µs | s |" in text
    assert "| gone | missing |  | all |" in text
    assert "Missing: gone: It is not installed." in text


def test_cases_of_one_name_are_told_apart_by_their_environments(tmp_path: Path) -> None:
    here, there = case(), dataclasses.replace(case(), environment="Xen there")
    store = Store.create(tmp_path / "run", about([here, there]))
    Driver(all_fake(), store, 2, 0.1, Silent()).run([here, there])
    docs.keep(tmp_path / "run", "once", tmp_path)
    page = tmp_path / "docs" / "page.md"
    rows = "ping in Xen there\nping in native\n"
    page.write_text(f"<!-- lab once toys\n{rows}-->\n<!-- lab end -->\n")
    docs.fill(tmp_path)
    shown = re.findall(r"^\| (ping[^|]*) \|", page.read_text(), re.MULTILINE)
    assert shown == ["ping, Xen there", "ping, native"]
    page.write_text(page.read_text().replace("in native", "in vain"))
    with pytest.raises(Failed, match="no ping in vain"):
        docs.fill(tmp_path)


def test_a_number_that_was_changed_is_found(root: Path) -> None:
    page = root / "docs" / "page.md"
    docs.fill(root)
    page.write_text(page.read_text().replace("108 ns", "10.8 ns"))
    assert docs.filled(page, root) != page.read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("once", "gone", "does not exist"),
        ("ping, 8", "pong, 8", "no pong, 8"),
        ("ping, 8", "ping, 9", "no ping, 9"),
    ],
)
def test_a_table_of_what_is_not_there(root: Path, old: str, new: str, said: str) -> None:
    page = root / "docs" / "page.md"
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(Failed, match=said):
        docs.filled(page, root)


# Authors, and what follows them where a title is given; years and chapters are no titles.
CITED = {
    "000": re.compile(r"Youseff et al[.,]* ?\(?,? ?([A-Z][a-z]\w+ [^(,;)]{12,})"),
    "001": re.compile(r"Song, Chen(?:,| and) Zang,? ?\(?([A-Z][a-z]\w+ [^(,;)]{12,})"),
    "002": re.compile(r"Younge,? ?\(?([A-Z][a-z]\w+ [^(,;)]{12,})"),
    "003": re.compile(r"Han et al[.,]* ?\(?([A-Z][a-z]\w+ [^(,;)]{12,})"),
}
YEARS = re.compile(r"Younge,? (20\d\d)")
COMMENT = re.compile(r"\n\s*(?://[!/]?|#|\*)? *")


def plain_title(text: str) -> str:
    """Letters and blanks only, in small."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def test_papers_are_cited_by_their_titles() -> None:
    argv = ["git", "-C", str(paths.ROOT), "grep", "-lE", "Younge|Han et al|Youseff|Song, Chen"]
    argv += ["--", ".", ":!docs/results", ":!lab/tests/test_docs.py"]
    found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    counted = 0
    for name in found:
        text = COMMENT.sub(" ", (paths.ROOT / name).read_text()).replace("*", "").replace('" "', "")
        for number, pattern in CITED.items():
            right = plain_title(PAPERS[number].split(", ", 1)[1])
            if number == "001":
                right = plain_title(PAPERS[number].split("Zang, ", 1)[1])
            for title in map(plain_title, pattern.findall(text)):
                counted += 1
                least = " ".join(right.split()[:6])
                assert title.startswith(least), f"{name}: {title}, not {right}"
        assert set(YEARS.findall(text)) <= {"2015"}, name
    assert counted >= 6


def test_the_turns_that_the_lab_counts_are_those_of_its_suites() -> None:
    page = (paths.LAB / "README.md").read_text().replace("\n", " ")
    (said,) = re.findall(r"A repetition has (\d.*?)\.", page)
    counted = {
        suite: int(count) for count, suite in re.findall(r"(\d+)(?: turns)? of `(\w+)`", said)
    }
    assert len(counted) == 4
    for suite, count in counted.items():
        turns = (len(case.sizes_of(one)) for case in SUITES[suite] for one in case.contenders)
        assert sum(turns) == count, suite
