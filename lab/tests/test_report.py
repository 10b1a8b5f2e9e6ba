"""Tables, comparisons and reports: what they say of a run, and that nothing is left out."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from fakes import FLOOR, OURS, THEIRS, Fake, Missing, Silent, about, all_fake, case
from vshmem_lab import analysis
from vshmem_lab.comparison import compare
from vshmem_lab.driver import Driver
from vshmem_lab.model import Contender, Failed, Reading, Wanted
from vshmem_lab.report.conclusion import conclusion
from vshmem_lab.report.grid import SINGLE, as_text, details, grid, text_of
from vshmem_lab.report.order import SUITE, heading, order
from vshmem_lab.report.plots import svg
from vshmem_lab.report.write import write
from vshmem_lab.store import Store, read_about

REPETITIONS = 12


def noisy(base: float, share: float = 0.01):
    """A value that goes up and down with each call."""
    return lambda turn, call: base * (1 + share * ((call * 7) % 5 - 2))


def run(folder: Path, *cases, **values) -> analysis.Run:
    """Plays cases with these contenders' base values; the run."""
    fakes = {
        name: value if not isinstance(value, float) else Fake(alter=noisy(value))
        for name, value in values.items()
    }
    kept = Store.create(folder, about(cases, REPETITIONS))
    Driver(all_fake(**fakes), kept, REPETITIONS, 0.1, Silent()).run(cases)
    return analysis.load(folder)


def test_a_difference_within_the_noise_is_none(tmp_path: Path) -> None:
    wild = Fake(alter=lambda _, call: 100 * (1 + 0.2 * (-1) ** (call // 2)))
    (table,) = run(tmp_path / "a", case(), ours=100.0, theirs=wild).tables
    assert table.verdict(table.lines[1]) == "no difference"
    assert not table.beats(table.lines[1])


def test_a_rival_that_is_faster_is_marked(tmp_path: Path) -> None:
    found = run(tmp_path / "a", case(), ours=100.0, theirs=80.0)
    (table,) = found.tables
    assert table.beats(table.lines[1])
    assert table.verdict(table.lines[1]).startswith("0.8 x Vshmem")
    assert "Faster than Vshmem:" in text_of(found)
    assert 'class="beaten"' in write(found, tmp_path / "a")[0].read_text()


def test_like_is_compared_with_like(tmp_path: Path) -> None:
    queues = Contender("Vshmem, queues", "ours", ("q",), vshmem=True)
    others = [Contender(f"kernel, {what}", "theirs", ("t",)) for what in ("queues", "segments")]
    (table,) = run(tmp_path / "a", case(OURS, queues, *others)).tables
    assert [line.reference for line in table.lines[2:]] == ["Vshmem, queues", "Vshmem"]


def test_other_software_stands_beside(tmp_path: Path) -> None:
    bar = dataclasses.replace(THEIRS, bar=True)
    (table,) = run(tmp_path / "a", case(OURS, bar), ours=100.0, theirs=80.0).tables
    assert table.lines[1].summary and table.lines[1].against is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sizes", [(0,), (8, 64, 1024)])
def test_what_is_zero_has_no_plot_or_a_linear_one(sizes: tuple[int, ...], tmp_path: Path) -> None:
    none = Fake(alter=lambda *_: 0.0)
    some = Fake(alter=lambda turn, _: 5.0 * (turn.size > 8))
    (table,) = run(tmp_path / "a", case(unit="B", sizes=sizes), ours=none, theirs=none).tables
    assert svg(table) is None
    (table,) = run(
        tmp_path / "b", case(unit="B", sizes=(8, 64, 1024)), ours=none, theirs=some
    ).tables
    assert "logarithmic" not in svg(table)


def test_a_base_is_that_of_the_same_size(tmp_path: Path) -> None:
    base = dataclasses.replace(OURS, vshmem=False, base=True)
    (table,) = run(
        tmp_path / "a", case(base, THEIRS, sizes=(0, 900)), ours=Fake(), theirs=Fake()
    ).tables
    assert [round(line.against.ratio, 2) for line in table.lines[2:]] == [10, 1.9]
    assert all(line.against is None for line in table.lines[:2])


def test_of_sizes_less_is_no_merit(tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(unit="B"), ours=100.0, theirs=80.0).tables
    assert table.verdict(table.lines[1]).startswith("0.8 x") and not table.beats(table.lines[1])


def test_mean_and_extremes_are_shown_where_they_are_wanted(tmp_path: Path) -> None:
    plain, wanted = case(name="plain"), case(name="wanted", extremes=True)
    found = run(tmp_path / "a", plain, wanted, ours=100.0, theirs=80.0)
    without, having = (grid(table) for table in found.tables)
    assert {"lowest", "mean", "highest"}.isdisjoint(without.head)
    row = dict(zip(having.head, having.rows[0], strict=True))
    assert (row["lowest"], row["mean"], row["highest"]) == ("98 ns", "99.8 ns", "102 ns")


def test_a_figure_of_the_papers_may_be_that_of_one_size(tmp_path: Path) -> None:
    figures = {"kernel": "5 ns", ("Vshmem", 64): "7 ns"}
    (table,) = run(tmp_path / "a", case(sizes=(8, 64), papers=figures)).tables
    assert [line.paper for line in table.lines] == ["", "7 ns", "5 ns", "5 ns"]


def test_choices_are_counted_and_not_compared(tmp_path: Path) -> None:
    ours = Fake(alter=lambda _, call: 2048 if call % 4 else 1024)
    counted = case(unit="B", choices=True, warm=False)
    (table,) = run(tmp_path / "a", counted, ours=ours, theirs=1024.0).tables
    assert table.lines[0].choices == {1024: 3, 2048: 9} and table.lines[1].against is None
    shown = grid(table)
    assert shown.rows[0][shown.head.index("chosen")] == "1 KiB (3x), 2 KiB (9x)"
    assert svg(table) and svg(dataclasses.replace(table, unit="")) is None


def test_only_emulated_rows_say_so(tmp_path: Path) -> None:
    class Emulated(Fake):
        """In a machine."""

        def measure(self, turns, seconds) -> list[Reading]:
            """Emulated."""
            found = super().measure(turns, seconds)
            return [dataclasses.replace(one, accelerator="tcg") for one in found]

    (table,) = run(tmp_path / "a", case(), ours=Emulated()).tables
    text = as_text(grid(table))
    assert "Vshmem (emulated)" in text and "kernel (emulated)" not in text
    assert "Emulated rows:" in text and table.lines[1].against is None


def test_sizes_that_are_missing_for_one_reason_have_one_row(tmp_path: Path) -> None:
    gone = Missing("No such device.")
    (table,) = run(tmp_path / "a", case(sizes=(8, 64, 1024)), theirs=gone).tables
    assert [row[1] for row in grid(table).rows] == ["8 B", "64 B", "1 KiB", "8 B - 1 KiB"]
    assert grid(table).missing == {3}


def test_the_floor_never_beats(tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(FLOOR, OURS), ours=100.0, floor=50.0).tables
    assert table.lines[0].against.real and not table.beats(table.lines[0])


def test_more_is_better_where_it_is(tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(unit="MB/s"), ours=100.0, theirs=120.0).tables
    assert table.beats(table.lines[1])


def test_limits_are_judged_by_the_pairs(tmp_path: Path) -> None:
    wanted = (Wanted("bare", 2.5), Wanted("kernel", 1 / 8), Wanted(absolute=99))
    contenders = (FLOOR, OURS, THEIRS)
    found = run(
        tmp_path / "a", case(*contenders, wanted=wanted), ours=100.0, theirs=900.0, floor=50.0
    )
    limits = found.tables[0].lines[1].limits
    assert [kept for _, kept in limits] == [True, True, False]
    assert [text.split(" (")[0] for text, _ in limits] == [
        "<= 2.5 x bare",
        "8 x faster than kernel",
        "<= 99 ns",
    ]
    assert found.limits() == (2, 1)
    page, _, text = (path.read_text() for path in write(found, tmp_path / "a"))
    assert 'class="missed"' in page and '<td class="wanted">' in page
    assert "<= 99 ns: MISSED" in text
    assert "Limits that Vshmem misses:\n  Vshmem: ping (native), <= 99 ns" in text


def test_a_limit_of_a_rate_and_of_one_size(tmp_path: Path) -> None:
    wanted = (Wanted("kernel", 0.95, size=1024), Wanted("kernel", 0.9, size=8))
    sized = case(unit="MB/s", sizes=(8, 1024), wanted=wanted)
    found = run(tmp_path / "a", sized, ours=92.0, theirs=100.0)
    assert [line.limits for line in found.tables[0].lines[:2]] == [
        [(">= 0.9 x kernel (0.92)", True)],
        [(">= 0.95 x kernel (0.92)", False)],
    ]


def test_what_is_emulated_is_not_compared_with_what_is_not(tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(), ours=Emulated(alter=noisy(100.0)), theirs=50.0).tables
    assert table.lines[1].against is None and not table.beats(table.lines[1])


class Emulated(Fake):
    """Between emulated machines."""

    def measure(self, turns, seconds):
        """As machines without KVM give it."""
        found = super().measure(turns, seconds)
        return [Reading(one.value, accelerator="tcg") for one in found]


def test_emulated_times_say_so_everywhere(tmp_path: Path) -> None:
    found = run(tmp_path / "a", case(), ours=Emulated())
    page, markdown, text = (path.read_text() for path in write(found, tmp_path / "a"))
    (picture,) = (tmp_path / "a" / "plots").glob("*.svg")
    for written in (page, markdown, text):
        assert re.search(r"ping \(native\) - emulated", written, re.IGNORECASE)
        assert "not those of real machines" in written
    assert "EMULATED" in picture.read_text()


BROWSER = shutil.which("chromium")


@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_a_browser_shows_all_of_a_page(tmp_path: Path) -> None:
    sized = case(sizes=(8, 64, 1024))
    page = write(run(tmp_path / "a", sized, ours=100.0, theirs=80.0), tmp_path / "a")[0]
    argv = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    argv += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=1000"]
    shown = subprocess.run(
        [*argv, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == 0, shown.stderr
    # Nothing that it complains of, and whatever the page has is there as an element.
    assert "CONSOLE" not in shown.stderr and "ERR_" not in shown.stderr
    written, seen = Page(), Page()
    written.feed(page.read_text())
    seen.feed(shown.stdout)
    assert seen.cells == written.cells > 0 and seen.ids == written.ids
    assert shown.stdout.count("<svg") == page.read_text().count("<svg") > 0
    assert "</html>" in shown.stdout


class Page(html.parser.HTMLParser):
    """What a page refers to, and its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.links, self.ids, self.cells = [], [], 0

    def handle_starttag(self, tag, attributes):
        """Notes it."""
        found = dict(attributes)
        self.links += [found[name] for name in ("src", "href", "xlink:href") if found.get(name)]
        self.ids += [found["id"]] if "id" in found else []
        self.cells += tag == "td"


def test_the_page_needs_no_network_and_leaves_nothing_out(tmp_path: Path) -> None:
    sizes = (8, 1024, 65536)
    cases = (case(sizes=sizes), case(name="gone"))
    found = run(tmp_path / "a", *cases, theirs=Missing("<Not> here."))
    page = Page()
    text = write(found, tmp_path / "a")[0].read_text()
    page.feed(text)
    assert page.links and all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    # What is missing has the width of the cells that are empty, and so does not widen its column.
    assert re.search(r'<td colspan="\d+">missing: &lt;Not&gt; here.</td></tr>', text)
    assert text.count("<svg") == 2
    for picture in (tmp_path / "a" / "plots").glob("*.svg"):
        ET.fromstring(picture.read_text())


def test_a_case_that_nothing_could_play_has_a_table_and_no_plot(tmp_path: Path) -> None:
    gone = Missing("Nothing is here.")
    found = run(tmp_path / "a", case(), ours=gone, theirs=gone)
    assert "<svg" not in write(found, tmp_path / "a")[0].read_text()
    assert text_of(found).count("missing: Nothing is here.") == 2


def test_the_same_samples_give_the_same_report(tmp_path: Path) -> None:
    found = run(tmp_path / "a", case())
    pages = [
        [p.read_text() for p in write(analysis.load(tmp_path / "a"), tmp_path / "a")] for _ in "12"
    ]
    assert pages[0] == pages[1]
    assert found.name == "a"


def test_a_slower_run_is_found_though_the_machine_is_slower(tmp_path: Path) -> None:
    run(tmp_path / "old", case(), ours=100.0, theirs=1000.0)
    run(tmp_path / "mood", case(), ours=150.0, theirs=1500.0)
    run(tmp_path / "slow", case(), ours=120.0, theirs=1000.0)
    verdicts = [
        compare(tmp_path / "old", tmp_path / new).rows[0][-1] for new in ("mood", "slow", "old")
    ]
    assert verdicts == ["no difference", "worse", "no difference"]
    assert compare(tmp_path / "slow", tmp_path / "old").rows[0][-1] == "better"


def test_what_only_one_run_has_is_said(tmp_path: Path) -> None:
    run(tmp_path / "old", case(name="old"))
    run(tmp_path / "new", case(name="new"), case(name="old"))
    said = as_text(compare(tmp_path / "old", tmp_path / "new"))
    assert "Only in the new one: new (native)." in said
    assert "Only in the old one: new (native)." in as_text(
        compare(tmp_path / "new", tmp_path / "old")
    )


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no run"):
        analysis.load(tmp_path)
    (tmp_path / "run.json").write_text('{"version": 99}')
    with pytest.raises(Failed, match="another version"):
        read_about(tmp_path)


def test_what_a_contender_lacks_is_said(tmp_path: Path) -> None:
    ring = Contender("ring", "theirs", ("r",), lacks="types")
    fake = Fake(alter=noisy(50.0))
    assert "ring lacks: types." in text_of(run(tmp_path / "a", case(OURS, ring), theirs=fake))


NAMES = ("System V", "OpenMP", "MPI")
MODELS = (OURS, *(Contender(name, name, ("x",)) for name in NAMES))
AS_THE_PAPERS = {"ours": 100.0, "System V": 100.0, "OpenMP": 150.0, "MPI": 200.0}


def dwarf(name: str):
    """A dwarf by all models."""
    return dataclasses.replace(case(*MODELS, sizes=(10, 20), counts="rows", name=name), suite=SUITE)


def closing(base: float, more: float):
    """A value that is nearer to the base in the larger problem."""
    return Fake(alter=lambda turn, call: (base + more * 10 / turn.size) * (1 + call % 5 / 1e4))


def test_a_heading_says_what_its_lines_bear_out(tmp_path: Path) -> None:
    shrinking = {"OpenMP": closing(150.0, 50.0), "MPI": closing(250.0, 500.0)}
    found = run(tmp_path / "a", dwarf("pi"), **(AS_THE_PAPERS | shrinking))
    assert heading(found) == "The papers' order of models holds in all 2 problems"
    (said,) = order(found)
    assert "as the papers found it in 2 of 2 sizes, the slowest takes 7.5 times" in said
    assert f"{heading(found)}:\n  {said}" in text_of(found)


@pytest.mark.parametrize(
    ("values", "contradicted"),
    [
        ({"MPI": 120.0}, "MPI is faster than OpenMP in 2"),
        ({"OpenMP": 70.0}, "OpenMP is faster than Vshmem in 2"),
        ({"System V": 130.0}, "System V and Vshmem differ in 2"),
        ({}, "gaps that do not close in 1 of 1 dwarfs"),
    ],
)
def test_a_heading_names_what_contradicts_it(
    values: dict, contradicted: str, tmp_path: Path
) -> None:
    found = run(tmp_path / "a", dwarf("pi"), **(AS_THE_PAPERS | values))
    held = 0 if values else 2
    expected = "holds in all 2" if held else "holds in 0 of 2"
    assert heading(found).startswith(f"The papers' order of models {expected} problems; against")
    assert contradicted in heading(found)
    assert "in 0" not in heading(found).partition("against")[2]


def test_noise_neither_bears_an_order_out_nor_contradicts_it(tmp_path: Path) -> None:
    wild = {"MPI": Fake(alter=lambda _, call: 150 * (1 + 0.2 * (-1) ** (call // 2)))}
    found = run(tmp_path / "a", dwarf("pi"), **(AS_THE_PAPERS | wild))
    assert heading(found).startswith("The papers' order of models holds in 0 of 2 problems")
    assert "MPI is faster" not in heading(found)
    assert "within noise in 2: OpenMP before MPI" in order(found)[0]


def test_each_dwarf_has_the_papers_own_order(tmp_path: Path) -> None:
    usual = AS_THE_PAPERS
    openmp_first = {**usual, "OpenMP": 70.0}
    mpi_first = {**usual, "MPI": 50.0}
    for name, values, held in (
        ("Laplace by Jacobi", openmp_first, "all 2"),
        ("Laplace by Jacobi", usual, "0 of 2"),
        ("molecular dynamics", mpi_first, "all 2"),  # the paper has no MPI there
        ("pi", mpi_first, "0 of 2"),
    ):
        found = run(tmp_path / f"{name}-{held[0]}", dwarf(name), **values)
        assert f"holds in {held} problems" in heading(found), name
    laplace = analysis.load(tmp_path / "Laplace by Jacobi-0")
    assert "Vshmem is faster than OpenMP" in heading(laplace)


class Timed(Fake):
    """Tells percentiles of single operations, the highest not in each turn."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self._whole = whole

    def measure(self, turns, seconds) -> list[Reading]:
        """The later, the slower."""
        found, call = super().measure(turns, seconds), len(self.calls)
        last = 300.0 + call if self._whole or call % 2 else None
        tails = {"p50": 100.0 + call, "p99": 200.0 + 50 * call, "p999": last and last + 50 * call}
        return [dataclasses.replace(one, **tails) for one in found]


@pytest.mark.parametrize("whole", [True, False])
def test_percentiles_are_of_the_same_turns(whole: bool, tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(), ours=Timed(whole)).tables
    tail = table.lines[0].tail
    assert tail["p50"] <= tail["p99"] and (tail["p999"] is not None) == whole
    assert not whole or tail["p99"] <= tail["p999"]
    found = details(table)
    assert ("p99.9" in found.head) == whole and SINGLE in found.notes
    assert not {"p50", "p99", "t-test"} & set(grid(table).head)
    assert details(run(tmp_path / "b", case()).tables[0]) is not None


def test_few_repetitions_are_said_once(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "a", about([case(sizes=(8, 64))], 3))
    Driver(all_fake(), kept, 3, 0.1, Silent()).run([case(sizes=(8, 64))])
    found = analysis.load(tmp_path / "a")
    shown = grid(found.tables[0])
    assert [row[shown.head.index("compared")] for row in shown.rows] == [
        "",
        "",
        "(9.33 x)",
        "(6.49 x)",
    ]
    assert sum("fewer than 8" in note for note in shown.notes) == 1
    assert "2 comparisons had fewer than 8 repetitions" in conclusion(found)[0]


def test_a_run_says_what_it_comes_to(tmp_path: Path) -> None:
    cases = case(), case(OURS, name="alone"), case(name="rate", unit="MB/s")
    found = run(tmp_path / "a", *cases, ours=100.0, theirs=900.0)
    (said,) = conclusion(found)
    assert (
        said.startswith("Of 2 comparisons with other means") and "better in 1, worse in 1" in said
    )
    assert text_of(found).rstrip().endswith(said)
    page = write(found, tmp_path / "a")[0].read_text()
    assert page.index(said) < page.index("<svg") < page.index("<nav>") < page.index("processor")


def test_a_contender_is_named_once(tmp_path: Path) -> None:
    (table,) = run(tmp_path / "a", case(sizes=(8, 64))).tables
    assert [row[0] for row in grid(table).rows] == ["Vshmem", "", "kernel", ""]


def test_papers_are_named_where_their_figures_stand(tmp_path: Path) -> None:
    plain = run(tmp_path / "a", case())
    cited = run(tmp_path / "b", case(papers={"kernel": "5 ns (004)"}))
    assert "Wolski" not in text_of(plain)
    for text in (text_of(cited), *(path.read_text() for path in write(cited, tmp_path / "b"))):
        assert "Youseff and Wolski, Vshmem" in text


def test_what_waits_alike_is_compared(tmp_path: Path) -> None:
    ways = ("ranks spin", "ranks sleep")
    ours = [dataclasses.replace(OURS, name=f"Vshmem, two machines, {way}") for way in ways]
    others = [
        dataclasses.replace(THEIRS, name=f"{place}, {way}")
        for way in ways
        for place in ("one machine", "TCP, two machines")
    ]
    wanted = tuple(Wanted(f"one machine, {way}", 2, ours=way) for way in ways)
    (table,) = run(tmp_path / "a", case(*ours, *others, wanted=wanted)).tables
    found = {line.contender: line for line in table.lines}
    for way in ways:
        for place in ("one machine", "TCP, two machines"):
            assert found[f"{place}, {way}"].reference == f"Vshmem, two machines, {way}"
        (limit,) = found[f"Vshmem, two machines, {way}"].limits
        assert f"one machine, {way}" in limit[0]
