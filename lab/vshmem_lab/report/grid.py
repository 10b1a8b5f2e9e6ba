"""Tables as grids of text, written as plain text or Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.report import kernels, knee, order, papers, supplements, variance
from vshmem_lab.report.conclusion import conclusion
from vshmem_lab.report.model import EMULATED, PARTLY, Grid
from vshmem_lab.stats import FEWEST
from vshmem_lab.text import duration, quantity, squared, times


def grid(table: Table) -> Grid:
    """The grid of a case. Columns that would be empty are left out."""
    shown = _merged([(line, _cells(table, line)) for line in table.lines])
    out = _grid(table.title, _HEADS, shown)
    out.beaten = {i for i, (line, _) in enumerate(shown) if table.beats(line)}
    out.missing = {i for i, (line, _) in enumerate(shown) if line.summary is None}
    kept = {i: all(ok for _, ok in line.limits) for i, (line, _) in enumerate(shown) if line.limits}
    out.missed = {i for i, ok in kept.items() if not ok}
    out.met = {i for i, ok in kept.items() if ok}
    out.emulated = table.emulated
    out.notes = _notes(table)
    return out


def details(table: Table) -> Grid | None:
    """What only some readers want of a case; None if there is nothing."""
    shown = [(line, _detailed(table, line)) for line in table.lines if line.summary]
    out = _grid(f"{table.title}, in detail", _DETAILS, shown)
    if set(out.head) <= {"contender", "size"}:
        return None
    if "p50" in out.head:
        out.notes.append(SINGLE)
    if "t-test" in out.head:
        out.notes.append(WELCH)
    return out


def _grid(title: str, heads: Sequence[str], shown: list[tuple[Line, dict[str, str]]]) -> Grid:
    """A grid of these cells. A contender is named in the first of its rows."""
    used = [name for name in heads if any(cells.get(name) for _, cells in shown)]
    rows = [[cells.get(name, "") for name in used] for _, cells in shown]
    for at in range(len(shown) - 1, 0, -1):
        if shown[at][0].contender == shown[at - 1][0].contender:
            rows[at][0] = ""
    return Grid(title, used, rows)


def _merged(shown: list[tuple[Line, dict[str, str]]]) -> list[tuple[Line, dict[str, str]]]:
    """One row for all sizes of a contender in a row that are missing for the same reason."""
    out: list[tuple[Line, dict[str, str]]] = []
    for line, cells in shown:
        last = out[-1][0] if out else None
        same = last and (last.contender, last.error) == (line.contender, line.error)
        if same and last.summary is None and line.summary is None:
            first = out[-1][1]["size"].partition(" - ")[0]
            out[-1][1]["size"] = f"{first} - {line.sized}"
        else:
            out.append((line, cells))
    return out


_HEADS = (
    "contender",
    "size",
    "median",
    "±",
    "chosen",
    "lowest",
    "mean",
    "highest",
    "std. dev.",
    "variance",
    "compared",
    "varies",
    "papers",
    "wanted",
)
_DETAILS = ("contender", "size", "95 % interval", "p50", "p99", "p99.9", "t-test")
SINGLE = (
    "p50 to p99.9 are of single operations, which were timed one by one, with the clock's own "
    "time, after those that the median is of; each is the median of the turns' percentiles."
)
PLAIN_FLOOR = "The floor is the same work on plain shared memory, without calls."
RAW_FLOOR = "The floor is one flag in the segment, by which each side gives the turn to the other."
VARIANCE = "varies: its variance by Vshmem's, by Brown and Forsythe's test, p 0.01 at most."
WELCH = "t-test: p of Welch's, as papers have it. Verdicts are by the sign test of pairs."


def _cells(table: Table, line: Line) -> dict[str, str]:
    cells = {
        "contender": line.contender + _marks(table, line),
        "size": line.sized,
        "papers": line.paper,
    }
    if line.summary is None:
        return {**cells, "median": f"missing: {_first_line(line.error)}"}
    found = line.summary
    cells["median"] = quantity(found.median, table.unit)
    if found.count > 1 and found.median:
        off = max(found.high - found.median, found.median - found.low) / found.median
        cells["±"] = f"{off:.0%}" if off >= 0.01 else f"{off:.1%}"
    if table.extremes and found.count > 1:
        for name in ("lowest", "mean", "highest"):
            cells[name] = quantity(getattr(found, name), table.unit)
    if table.spread and found.count > 1:
        cells["mean"] = quantity(found.mean, table.unit)
        cells["std. dev."] = quantity(found.deviation, table.unit)
        cells["variance"] = squared(found.deviation**2, table.unit)
        cells["varies"] = _varies(line)
    counts = (f"{quantity(x, table.unit)} ({n}x)" for x, n in line.choices.items())
    cells["chosen"] = ", ".join(counts)
    cells["compared"] = table.verdict(line, named=False)
    cells["wanted"] = "; ".join(f"{what}: {_judged(ok)}" for what, ok in line.limits)
    return cells


def _varies(line: Line) -> str:
    """How a line's variance compares with Vshmem's; in parentheses if too few tell it."""
    if line.spread is None or line.vshmem:
        return ""
    if line.spread.known and not line.spread.real:
        return "no difference"
    words = f"{times(line.spread.ratio)} x"
    return words if line.spread.known else f"({words})"


def _detailed(table: Table, line: Line) -> dict[str, str]:
    found = line.summary
    cells = {"contender": line.contender + _marks(table, line), "size": line.sized}
    if found.count > 1:
        edges = (quantity(edge, table.unit) for edge in (found.low, found.high))
        cells["95 % interval"] = " - ".join(edges)
    for name, key in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999")):
        value = line.tail.get(key)
        cells[name] = duration(value) if value is not None else ""
    if line.against and line.against.welch_p == line.against.welch_p and not line.vshmem:
        cells["t-test"] = f"p {_p(line.against.welch_p)}"
    return cells


def _marks(table: Table, line: Line) -> str:
    emulated = " (emulated)" if table.partly_emulated and line.accelerator == "tcg" else ""
    return (" (the floor)" if line.floor else "") + emulated


def _judged(ok: bool) -> str:
    return "met" if ok else "MISSED"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason was given"


def _notes(table: Table) -> list[str]:
    notes = [PARTLY if table.partly_emulated else EMULATED] if table.emulated else []
    placements = dict.fromkeys(line.placement for line in table.lines if line.placement)
    if placements:
        notes.append(f"Where the processes sat: {'; '.join(placements)}.")
    counted = f"{table.repetitions} repetition{'s' if table.repetitions != 1 else ''}"
    if table.noise is not None:
        counted += f"; a sample is off its median by {table.noise:.1%}, mostly"
    if table.unsteady:
        counted += (
            f"; {table.unsteady} more in which the floor changed by over a quarter are left out"
        )
    if table.moved:
        counted += f"; in {table.moved} of them the floor changed by over a quarter"
    notes.append(f"Medians of {counted}.")
    notes += _compared(table)
    notes += [VARIANCE] if table.spread and any(line.spread for line in table.lines) else []
    if any(line.against and not line.against.known for line in table.lines):
        notes.append(f"In parentheses: compared by fewer than {FEWEST} repetitions.")
    if any(line.paper for line in table.lines):
        notes.append(papers.NOTE)
    lacks = [f"{line.contender} lacks: {line.lacks}." for line in table.lines if line.lacks]
    notes += dict.fromkeys(lacks)  # once for all sizes
    failed = {f"{x.contender}: {x.error}" for x in table.lines if x.error and x.summary}
    return notes + sorted(failed)


def _compared(table: Table) -> list[str]:
    """What the lines are compared with, and what the floor is."""
    names = list(dict.fromkeys(line.reference for line in table.lines if line.against))
    notes = [f"compared: with {names[0]}."] if len(names) == 1 else []
    if len(names) > 1:
        first = next(line.contender for line in table.lines if line.vshmem)
        notes = [f"compared: with Vshmem by the same means, where there are none with {first}."]
    if any(line.floor for line in table.lines):
        notes.append(RAW_FLOOR if table.spread else PLAIN_FLOOR)
    return notes


def as_text(found: Grid) -> str:
    """For a terminal. What is missing may be wider than its column."""
    rows = [found.head, *found.rows]
    if found.wrap:
        rows = [line for row in rows for line in _wrapped(row, found.wrap)]
    wide = found.head.index("median") if "median" in found.head else -1
    widths = [
        max(
            len(row[i])
            for at, row in enumerate(rows)
            if not (i == wide and at - 1 in found.missing)
        )
        for i in range(len(found.head))
    ]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    below = len(_wrapped(found.head, found.wrap)) if found.wrap else 1
    lines.insert(below, "  ".join("-" * width for width in widths))
    title = found.title + (" - EMULATED" if found.emulated else "")
    return "\n".join([title, *(f"  {line}" for line in (*lines, *found.notes))])


def _wrapped(row: list[str], width: int) -> list[list[str]]:
    """A row as several, whose cells are no wider than that."""
    cells = [textwrap.wrap(cell, width) for cell in row]
    return [list(line) for line in zip_longest(*cells, fillvalue="")]


def as_markdown(found: Grid) -> str:
    """For a page."""
    title = found.title + (" - emulated" if found.emulated else "")
    rows = [
        [f"**{cell}**" if i in found.beaten | found.missed and cell else cell for cell in row]
        for i, row in enumerate(found.rows)
    ]
    lines = [_row(found.head), _row(["---"] * len(found.head)), *(_row(row) for row in rows)]
    return "\n".join([f"### {title}", "", *lines, "", *(f"{note}  " for note in found.notes), ""])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _repetitions(about: dict) -> str:
    """How often each case was measured, and how long."""
    count = about["repetitions"]
    said = f"{count} repetition{'s' if count != 1 else ''} of {about['seconds']:g} s a turn"
    if any(case.get("runs") for case in about["cases"]):
        said += ", or as many as the papers had"
    if about.get("minutes"):
        said = f"up to {said}, as many as there was time for in {about['minutes']:g} minutes"
    return said


def heading(run: Run) -> list[tuple[str, str]]:
    """What the run was measured on."""
    about = run.about
    lines = [(key, str(value)) for key, value in about["machine"].items() if key != "versions"]
    lines += [("versions", ", ".join(f"{k}: {v}" for k, v in about["machine"]["versions"].items()))]
    lines += [("run", _repetitions(about))]
    if "load after" in about:
        lines.append(("load after", str(about["load after"])))
    if about.get("beside"):
        beside = about["beside"]
        names = f": {', '.join(beside['names'])}" if beside["names"] else ""
        lines.append(("beside it", f"others took {beside['share']:.1%} of a processor{names}"))
    if run.noise() is not None:
        lines.append(("noise", f"a sample is off its median by {run.noise():.1%}, mostly"))
    if not about.get("complete"):
        lines.append(
            ("INCOMPLETE", "the run was interrupted; vshmem lab run --resume goes on with it")
        )
    if run.emulated:
        lines.append(("EMULATED", "some machines; their tables say so"))
    kept, missed = run.limits()
    if kept + missed:
        lines.append(("limits", f"{kept} kept, {missed} missed"))
    return lines


def named(line: Line) -> str:
    """A contender with its size."""
    return f"{line.contender}, {line.sized}" if line.size else line.contender


def beaten(run: Run) -> list[str]:
    """A sentence for each contender that beats Vshmem."""
    return [
        f"{named(line)}: {table.title}, {table.verdict(line)}"
        for table in run.tables
        for line in table.lines
        if table.beats(line)
    ]


def missed(run: Run) -> list[str]:
    """A sentence for each limit that Vshmem misses."""
    return [
        f"{named(line)}: {table.title}, {what}"
        for table in run.tables
        for line in table.lines
        for what, ok in line.limits
        if not ok
    ]


def findings(run: Run) -> list[tuple[str, list[str]]]:
    """What a reader is to know first: what does not speak for Vshmem, and the papers' order."""
    found = [("Faster than Vshmem", beaten(run)), ("Limits that Vshmem misses", missed(run))]
    found += [(order.heading(run), order.order(run)), (knee.HEADING, knee.knees(run))]
    found += [(variance.heading(run), variance.varies(run))]
    found += [(kernels.HEADING, kernels.kernels(run))]
    return [(heading, lines) for heading, lines in found if lines]


def text_of(run: Run, *, detailed: bool = False) -> str:
    """A run as plain text. What it comes to is at the end, where a terminal shows it."""
    parts = [as_text(grid(table)) for table in run.tables]
    suites = dict.fromkeys(table.suite for table in run.tables)
    parts += [as_text(found) for suite in suites for found in supplements.of(run, suite)]
    if detailed:
        parts += [as_text(found) for table in run.tables if (found := details(table))]
    heads = [f"{key + ':':<13} {value}" for key, value in (*heading(run), *papers.cited(run))]
    parts.append("\n".join(heads))
    parts += ["\n".join([f"{head}:", *(f"  {x}" for x in lines)]) for head, lines in findings(run)]
    parts.append("\n".join(conclusion(run)))
    return "\n\n".join(part for part in parts if part) + "\n"
