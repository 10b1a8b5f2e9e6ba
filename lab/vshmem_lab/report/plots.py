"""The plots, as SVG: bars for one size, lines over sizes."""

from __future__ import annotations

import io

import matplotlib

matplotlib.use("svg")
# The back end is chosen before pyplot is loaded.
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from vshmem_lab.analysis import Line, Table  # noqa: E402
from vshmem_lab.text import quantity, size_text  # noqa: E402

# Of Vshmem, of its rivals (told apart by their markers too), and of the floor.
OURS = ("#0b5fa5", "#4ba3e3", "#0f7a6b")
THEIRS = ("#b8500d", "#8a6d00", "#7b3f8c", "#a5304f", "#5b5b5b", "#c98a4b")
FLOOR = "#9a9a9a"
MARKERS = "osD^vP*X"


def colours(table: Table) -> dict[str, str]:
    """A colour for each contender."""
    ours, theirs, found = 0, 0, {}
    each = dict.fromkeys((line.contender, line.vshmem, line.floor) for line in table.lines)
    for name, vshmem, floor in each:
        if floor:
            found[name] = FLOOR
        elif vshmem:
            found[name], ours = OURS[ours % len(OURS)], ours + 1
        else:
            found[name], theirs = THEIRS[theirs % len(THEIRS)], theirs + 1
    return found


def svg(table: Table) -> str | None:
    """The plot of a case; None if nothing of it was measured, or all of it is zero.

    Nor have choices that have no unit one: each is of another kind.
    """
    if table.unit == "" and any(line.choices for line in table.lines):
        return None
    if not any(line.summary and line.summary.high > 0 for line in table.lines):
        return None
    sizes = sorted({line.size for line in table.lines})
    draw = _lines if len(sizes) > 2 else _bars
    rows = len([line for line in table.lines if line.summary])
    height = 4.2 if draw is _lines else 1.1 + 0.36 * rows
    figure, axes = pyplot.subplots(figsize=(9, height))
    try:
        draw(axes, table)
        title = table.title + (" - EMULATED" if table.emulated else "")
        axes.set_title(
            title, fontsize=10, loc="left", color="#a00000" if table.emulated else "black"
        )
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.tight_layout()
        return _text(figure)
    finally:
        pyplot.close(figure)


def _text(figure: pyplot.Figure) -> str:
    out = io.StringIO()
    # The same samples give the same file: ids are not random, and no date is in it.
    with matplotlib.rc_context({"svg.hashsalt": "vshmem"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _bars(axes: Axes, table: Table) -> None:
    shown = [line for line in table.lines if line.summary]
    palette = colours(table)
    places = range(len(shown), 0, -1)
    for place, line in zip(places, shown, strict=True):
        found = line.summary
        axes.barh(place, found.median, 0.62, color=palette[line.contender])
        axes.plot([found.low, found.high], [place, place], color="black", linewidth=1.2)
        label = f" {quantity(found.median, table.unit)}"
        axes.annotate(label, (max(found.high, found.median), place), va="center", fontsize=8)
    axes.set_yticks(list(places), [_name(line) for line in shown], fontsize=8)
    values = [value for line in shown for value in (line.summary.median, line.summary.high)]
    least = min(values)
    if 0 < least < max(values) / 20:
        axes.set_xscale("log")
        axes.set_xlabel("logarithmic", fontsize=8)
        axes.set_xlim(least / 3, max(values) * 3)
    else:
        axes.set_xlim(0, max(values) * 1.2)
    axes.xaxis.set_major_formatter(lambda value, _: quantity(value, table.unit))
    axes.tick_params(axis="x", labelsize=8)
    axes.minorticks_off()


def _name(line: Line) -> str:
    return f"{line.contender}, {line.sized}" if line.size else line.contender


def _lines(axes: Axes, table: Table) -> None:
    palette = colours(table)
    for number, name in enumerate(dict.fromkeys(line.contender for line in table.lines)):
        mine = [line for line in table.lines if line.contender == name and line.summary]
        if not mine:
            continue
        sizes = [line.size for line in mine]
        low = [line.summary.low for line in mine]
        high = [line.summary.high for line in mine]
        style = {"color": palette[name], "marker": MARKERS[number % len(MARKERS)]}
        axes.plot(sizes, [line.summary.median for line in mine], label=name, **style)
        axes.fill_between(sizes, low, high, color=palette[name], alpha=0.2, linewidth=0)
    ticks = sorted({line.size for line in table.lines})
    axes.set_xscale("log", base=2)
    if all(line.summary.low > 0 for line in table.lines if line.summary):
        axes.set_yscale("log")
        axes.set_ylabel("logarithmic", fontsize=8)
    counts = table.lines[0].counts
    axes.set_xticks(ticks, [size_text(size, counts) for size in ticks], fontsize=8)
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, table.unit))
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
