"""A run's report: one HTML file that needs no network, and Markdown with plots as SVG."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab.analysis import Run, Table
from vshmem_lab.report import papers, plots, supplements
from vshmem_lab.report.conclusion import conclusion
from vshmem_lab.report.grid import as_markdown, details, findings, grid, heading, text_of
from vshmem_lab.report.model import EMULATED, PARTLY, Grid

MEASURED_ON = "Measured on"
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; }
body { margin: 1.5rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .22rem .8rem .22rem 0; vertical-align: top; }
th, td { border-bottom: 1px solid #e4e4e4; }
tr.beaten td { background: #fde3e3; color: #8c0000; }
tr.met td.wanted { color: #0b6b2e; }
tr.missed td.wanted { color: #8c0000; font-weight: bold; }
tr.missing td { color: #777; font-style: italic; }
.lead { font-size: 1.05rem; } .lead p { margin: .4rem 0; }
.wide { overflow-x: auto; } .wide svg { min-width: 36rem; } details { margin: .3rem 0; }
.wide table { min-width: 34rem; }
.wide td:nth-child(2):not([colspan]), .wide td:nth-child(3) { white-space: nowrap; }
summary { color: #0b5fa5; cursor: pointer; font-size: .86rem; }
.note { color: #555; font-size: .82rem; margin: .2rem 0; }
.emulated { background: #fff1c9; border-left: 4px solid #d08a00; padding: .3rem .7rem; }
svg { max-width: 100%; height: auto; } nav a { margin-right: 1rem; }
"""


def slug(table: Table) -> str:
    """A case in a file's name."""
    words = f"{table.suite}-{table.case}-{table.environment}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def write(run: Run, folder: Path, lead: Sequence[str] = ()) -> list[Path]:
    """Writes report.html, report.md, report.txt and plots/*.svg into the folder; their paths.

    The report begins with the lead, by default what the run comes to, and the first plot.
    """
    lead = lead or conclusion(run)
    pictures = folder / "plots"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for table in run.tables:
        picture = plots.svg(table)
        if picture:
            drawn[slug(table)] = picture
            (pictures / f"{slug(table)}.svg").write_text(picture)
    files = {
        "report.html": _html(run, drawn, lead),
        "report.md": _markdown(run, drawn, lead),
        "report.txt": text_of(run, detailed=True),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def _suites(run: Run) -> dict[str, list[Table]]:
    found: dict[str, list[Table]] = {}
    for table in run.tables:
        found.setdefault(table.suite, []).append(table)
    return found


def _markdown(run: Run, drawn: dict[str, str], lead: Sequence[str]) -> str:
    parts = [f"# Vshmem lab: {run.name}", "", *(f"{line}  " for line in lead)]
    for head, lines in findings(run):
        parts += ["", f"{head}:", "", *(f"* {line}" for line in lines)]
    for suite, tables in _suites(run).items():
        parts += ["", f"## {suite}", ""]
        for table in tables:
            parts.append(as_markdown(grid(table)))
            if slug(table) in drawn:
                parts += [f"![{table.title}](plots/{slug(table)}.svg)", ""]
        parts += [as_markdown(one) for one in supplements.of(run, suite)]
        parts += [as_markdown(one) for table in tables if (one := details(table))]
    parts += ["", f"## {MEASURED_ON}", ""]
    parts += [f"* {key}: {value}" for key, value in (*heading(run), *papers.cited(run))]
    return "\n".join(parts) + "\n"


def _html(run: Run, drawn: dict[str, str], lead: Sequence[str]) -> str:
    title = html.escape(f"Vshmem lab: {run.name}")
    suites = _suites(run)
    links = "".join(f'<a href="#{suite}">{suite}</a>' for suite in suites)
    first = next(iter(drawn), "")
    parts = [f"<h1>{title}</h1>", '<div class="lead">']
    parts += [f"<p>{html.escape(line)}</p>" for line in lead]
    if run.emulated:
        parts.append(f'<p class="emulated">{html.escape(EMULATED)}</p>')
    parts += ["</div>", _picture(drawn, first)]
    for heading_of, found in findings(run):
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in found)
        parts.append(f"<h3>{heading_of}</h3><ul>{lines}</ul>")
    parts.append(f'<nav>{links}<a href="#measured-on">{MEASURED_ON}</a></nav>')
    for suite, tables in suites.items():
        parts.append(f'<h2 id="{suite}">{suite}</h2>')
        for table in tables:
            parts.append(_html_grid(grid(table)))
            parts += [_picture(drawn, slug(table))] if slug(table) != first else []
            found = details(table)
            parts += [_folded(found)] if found else []
        parts += [_html_grid(one) for one in supplements.of(run, suite)]
    about = (*heading(run), *papers.cited(run))
    rows = "".join(_tr([f"<b>{html.escape(k)}</b>", html.escape(v)]) for k, v in about)
    parts.append(f'<h2 id="measured-on">{MEASURED_ON}</h2><table>{rows}</table>')
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += f"<title>{title}</title><style>{STYLE}</style>"
    body = "".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _picture(drawn: dict[str, str], name: str) -> str:
    """A plot; nothing if there is none."""
    picture = _unique(drawn.get(name, ""), name)
    return f'<div class="wide">{picture}</div>' if picture else ""


def _folded(found: Grid) -> str:
    """A grid that is shown when it is asked for."""
    return f"<details><summary>In detail</summary>{_html_grid(found, titled=False)}</details>"


def _unique(picture: str, slug: str) -> str:
    """A plot whose ids no other plot of the page has."""
    picture = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{slug}-", picture)
    return picture


def _class(note: str) -> str:
    return "note emulated" if note in (EMULATED, PARTLY) else "note"


def _html_grid(found: Grid, *, titled: bool = True) -> str:
    kinds = {"beaten": found.beaten, "missing": found.missing}
    kinds |= {"missed": found.missed, "met": found.met}
    rows = []
    for i, row in enumerate(found.rows):
        classes = " ".join(kind for kind, which in kinds.items() if i in which)
        cells = [html.escape(cell) for cell in row]
        rows.append(_tr(cells, classes, found.head, "median" if i in found.missing else ""))
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in found.head)
    title = html.escape(found.title) + (" - emulated" if found.emulated else "")
    notes = "".join(f'<p class="{_class(note)}">{html.escape(note)}</p>' for note in found.notes)
    table = f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    return (f"<h3>{title}</h3>" if titled else "") + table + notes


def _tr(cells: list[str], kind: str = "", head: Sequence[str] = (), wide: str = "") -> str:
    """A row. The cell of a column that is wide has the empty ones to its right as well."""
    row = f' class="{kind}"' if kind else ""
    marks = [' class="wanted"' if name == "wanted" else "" for name in head] or [""] * len(cells)
    if wide in head:
        at = head.index(wide)
        empty = len(list(itertools.takewhile(lambda cell: not cell, cells[at + 1 :])))
        cells, marks = ([*x[: at + 1], *x[at + 1 + empty :]] for x in (cells, marks))
        marks[at] = f' colspan="{1 + empty}"'
    tagged = (f"<td{mark}>{cell}</td>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr{row}>{''.join(tagged)}</tr>"
