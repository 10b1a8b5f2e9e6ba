"""What the suite `vsuite` has besides its cases: figures 1, 3, 4, 7, 9 and 10 of paper 001, and its
table 2 by itself, for it is of another quantity than ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.environments import NATIVE
from vshmem_lab.features import vsuite as paper
from vshmem_lab.report.model import EMULATED, Grid
from vshmem_lab.suites.vsuite import ALL, BOUND, CLOCK, GUEST, IDLE, PAGES, SUITE
from vshmem_lab.text import times

VTIME = f"guest, {CLOCK}"
# By the paper's name of a remedy: with it, and without it.
GAINS = {
    CLOCK: (VTIME, GUEST),
    IDLE: (f"guest, {CLOCK} and {IDLE}", VTIME),
    BOUND: (f"guest, {BOUND}", GUEST),
    PAGES: (f"guest, {PAGES}", GUEST),
    "all": (ALL, GUEST),
}
NONE = "-"
# By application and the number of processors.
Found = dict[str, dict[int, Table]]


def supplement(run: Run) -> list[Grid]:
    """The grids of a run of this suite; none of another one."""
    found: Found = {}
    for table in run.tables:
        if table.suite == SUITE:
            found.setdefault(table.case, {})[int(table.environment.split()[0])] = table
    if not found:
        return []
    theirs = _table2(found)
    grids = [_scaling(found), _gains(found), _kernel(found), theirs, _idle(found)]
    grids += [_misses(found, *figure) for figure in MISSES]
    for grid in grids:
        if run.emulated and grid.rows and grid is not theirs:
            grid.emulated = True
            grid.notes.append(EMULATED)
    return grids


def _line(table: Table | None, contender: str) -> Line | None:
    lines = table.lines if table else []
    return next((one for one in lines if one.contender == contender and one.summary), None)


def faster(table: Table | None, one: str, other: str) -> float | None:
    """How many times as fast one contender is as another; None where that can't be said."""
    mine, theirs = _line(table, one), _line(table, other)
    if table is None or mine is None or theirs is None:
        return None
    # What is emulated is compared with nothing else.
    if (mine.accelerator == "tcg") != (theirs.accelerator == "tcg"):
        return None
    return _ratio(table, mine, theirs)


def _ratio(table: Table, mine: Line, theirs: Line) -> float | None:
    ratio = theirs.summary.median / mine.summary.median
    return 1 / ratio if table.more_is_better else ratio


def _said(value: float | None) -> str:
    return NONE if value is None else times(value)


def _scaling(found: Found) -> Grid:
    """Figure 1: how much faster by more processors, and how much slower than natively."""
    counts = sorted({count for tables in found.values() for count in tables})
    places = (NATIVE, GUEST, ALL)
    head = ["application", *(f"{place}, {count}" for place in places for count in counts[1:])]
    head += [f"slower than native, {count}" for count in counts]
    rows = []
    for name, tables in found.items():
        first = tables.get(counts[0])
        cells = []
        for place in places:
            for count in counts[1:]:
                table = tables.get(count)
                mine, alone = _line(table, place), _line(first, place)
                cells.append(
                    _said(_ratio(table, mine, alone) if table and mine and alone else None)
                )
        for count in counts:
            ratio = faster(tables.get(count), NATIVE, GUEST)
            cells.append(NONE if ratio is None else f"{100 * (ratio - 1):.0f} %")
        rows.append([name, *cells, *paper.SLOWER.get(name, (NONE, NONE))])
    head += ["paper, paravirtual", "paper, hardware-assisted"]
    out = Grid("Figure 1: how much faster by so many processors than by one", head, rows, wrap=20)
    out.notes = [
        "Paper: its figure is a picture; by how much its text calls Xen slower than native."
    ]
    return out


def _gains(found: Found) -> Grid:
    """Figures 9 and 10: what each remedy gains, by all processors."""
    rows, columns = [], {name: [] for name in GAINS}
    for name, tables in found.items():
        table = tables[max(tables)]
        gains = {remedy: faster(table, *pair) for remedy, pair in GAINS.items()}
        for remedy, gain in gains.items():
            columns[remedy] += [] if gain is None else [gain]
        rows.append([name, *map(_said, gains.values())])
    rows.append(["geometric mean", *(_said(mean(column)) for column in columns.values())])
    for label, theirs in (
        ("paper, figure 9 (paravirtual)", paper.FASTER_PARAVIRTUAL),
        ("paper, figure 10 (hardware-assisted)", paper.FASTER_ASSISTED),
    ):
        rows.append([label, *(theirs.get(remedy, NONE) for remedy in GAINS)])
    title = "Figures 9 and 10: how many times as fast with a remedy"
    out = Grid(title, ["application", *GAINS], rows, wrap=24)
    out.notes = [
        "vtime: a clock that is read in the machine; idle: the idle daemon, on top of vtime; cm: "
        "processors that are bound; iTLB: huge pages. Else beside a guest without any of them."
    ]
    return out


def mean(values: Sequence[float]) -> float | None:
    """The geometric mean; of none there is none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _kernel(found: Found) -> Grid:
    """Where reading time costs: the machine's own kernel has more to do, but not that alone."""
    counts = sorted({count for tables in found.values() for count in tables})
    clocks = {"acpi_pm": GUEST, "tsc": VTIME}
    head = ["application", *(f"{clock}, {count}" for count in counts for clock in clocks)]
    rows = []
    for name, tables in found.items():
        cells = [
            _percent(_line(tables.get(count), place), "kernel")
            for count in counts
            for place in clocks.values()
        ]
        rows.append([name, *cells])
    out = Grid("Time in the kernel, by how time is read", head, rows, wrap=12)
    out.notes = ["By the machine's own /proc/stat: all that its kernel does."]
    return out


def _table2(found: Found) -> Grid:
    """The paper's, of which a guest can't tell anything."""
    head = ["application"]
    head += [f"{name}, {count}" for count in (8, 32) for name in ("Xen", "iXen")]
    rows = [
        [name, *(f"{one:.2f} %" for one in paper.EMULATED_TIME[name])]
        for name in found
        if name in paper.EMULATED_TIME
    ]
    out = Grid("Table 2: cycles in Xen's emulation of time, in the paper alone", head, rows)
    out.notes = [
        "Nothing of ours stands beside: a guest does not see the hypervisor's cycles, and its "
        "kernel's time is another quantity."
    ]
    return out


def _idle(found: Found) -> Grid:
    """Figure 3, and what the processor counts where it does."""
    names = ["idle", "steal", "cycles", "cache-misses"]
    places = {NATIVE: NATIVE, GUEST: GUEST, "all remedies": ALL}
    rows, head = [], ["application"]
    lines = [
        _line(tables[max(tables)], place) for tables in found.values() for place in places.values()
    ]
    known = [name for name in names if any(line and name in line.profile for line in lines)]
    head += [f"{name}, {place}" for name in known for place in places]
    for name, tables in found.items():
        table = tables[max(tables)]
        cells = [_counted(_line(table, place), what) for what in known for place in places.values()]
        rows.append([name, *cells])
    out = Grid("Figure 3: where the processors' time went, by all of them", head, rows, wrap=12)
    if "cycles" not in known:
        out.notes = ["No processor here counts cycles and misses for perf."]
    return out


# Title, what is said of a gap, and perf's names.
MISSES = (
    (
        "Figure 4: misses of the second cache",
        "the second cache",
        ("l2_rqsts.miss", "l2_cache_req_stat.ic_dc_miss_in_l2"),
    ),
    ("Figure 7: misses of the TLB of instructions", "that TLB", ("iTLB-load-misses",)),
)


def _misses(found: Found, title: str, what: str, names: Sequence[str]) -> Grid:
    """By all processors, in the places that count; a gap that is stated where none does."""
    places = (NATIVE, *(pair[0] for pair in GAINS.values()), GUEST)
    rows = []
    for name, tables in found.items():
        lines = [_line(tables[max(tables)], place) for place in places]
        counts = [
            next((f"{x.profile[one]:,.0f}" for one in names if x and one in x.profile), NONE)
            for x in lines
        ]
        rows += [[name, *counts]] if set(counts) != {NONE} else []
    out = Grid(title, ["application", *places], rows, wrap=16)
    if not rows:
        out.notes = [f"A gap: no processor here counts misses of {what} for perf."]
    return out


def _counted(line: Line | None, name: str) -> str:
    if name in ("idle", "steal"):
        return _percent(line, name)
    return f"{line.profile[name]:,.0f}" if line and name in line.profile else NONE


def _percent(line: Line | None, name: str) -> str:
    return f"{line.profile[name]:.0f} %" if line and name in line.profile else NONE
