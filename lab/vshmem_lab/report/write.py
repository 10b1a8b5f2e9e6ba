"""A run's report: one HTML file that needs no network, and Markdown with plots as SVG."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab.analysis import Run, Table
from vshmem_lab.report import plots, supplements
from vshmem_lab.report.grid import as_markdown, findings, grid, heading, text_of
from vshmem_lab.report.model import EMULATED, PARTLY, Grid

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; }
body { margin: 2rem auto; max-width: 78rem; padding: 0 1rem; }
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
.wide { overflow-x: auto; } .note { color: #555; font-size: .82rem; margin: .2rem 0; }
.emulated { background: #fff1c9; border-left: 4px solid #d08a00; padding: .3rem .7rem; }
svg { max-width: 100%; height: auto; } nav a { margin-right: 1rem; }
"""


def _slug(table: Table) -> str:
    words = f"{table.suite}-{table.case}-{table.environment}".lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def write(run: Run, folder: Path) -> list[Path]:
    """Writes report.html, report.md, report.txt and plots/*.svg into the folder; their paths."""
    pictures = folder / "plots"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for table in run.tables:
        picture = plots.svg(table)
        if picture:
            drawn[_slug(table)] = picture
            (pictures / f"{_slug(table)}.svg").write_text(picture)
    files = {
        "report.html": _html(run, drawn),
        "report.md": _markdown(run, drawn),
        "report.txt": text_of(run),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def _suites(run: Run) -> dict[str, list[Table]]:
    found: dict[str, list[Table]] = {}
    for table in run.tables:
        found.setdefault(table.suite, []).append(table)
    return found


def _markdown(run: Run, drawn: dict[str, str]) -> str:
    parts = [f"# Vshmem lab: {run.name}", ""]
    parts += [f"* {key}: {value}" for key, value in heading(run)]
    for head, lines in findings(run):
        parts += ["", f"{head}:", "", *(f"* {line}" for line in lines)]
    for suite, tables in _suites(run).items():
        parts += ["", f"## {suite}", ""]
        for table in tables:
            parts.append(as_markdown(grid(table)))
            if _slug(table) in drawn:
                parts += [f"![{table.title}](plots/{_slug(table)}.svg)", ""]
        parts += [as_markdown(one) for one in supplements.of(run, suite)]
    return "\n".join(parts) + "\n"


def _html(run: Run, drawn: dict[str, str]) -> str:
    title = html.escape(f"Vshmem lab: {run.name}")
    heads = "".join(_tr([f"<b>{html.escape(k)}</b>", html.escape(v)]) for k, v in heading(run))
    suites = _suites(run)
    links = "".join(f'<a href="#{suite}">{suite}</a>' for suite in suites)
    parts = [f"<h1>{title}</h1>", f"<nav>{links}</nav>", f"<table>{heads}</table>"]
    if run.emulated:
        parts.append(f'<p class="emulated">{html.escape(EMULATED)}</p>')
    for heading_of, found in findings(run):
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in found)
        parts.append(f"<h3>{heading_of}</h3><ul>{lines}</ul>")
    for suite, tables in suites.items():
        parts.append(f'<h2 id="{suite}">{suite}</h2>')
        for table in tables:
            parts += [_html_grid(grid(table)), _unique(drawn.get(_slug(table), ""), _slug(table))]
        parts += [_html_grid(one) for one in supplements.of(run, suite)]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    body = "".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _unique(picture: str, slug: str) -> str:
    """A plot whose ids no other plot of the page has."""
    picture = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{slug}-", picture)
    return picture


def _class(note: str) -> str:
    return "note emulated" if note in (EMULATED, PARTLY) else "note"


def _html_grid(found: Grid) -> str:
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
    return f"<h3>{title}</h3>{table}{notes}"


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
