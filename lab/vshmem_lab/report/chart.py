"""The bars of a case, drawn by characters for a terminal."""

from __future__ import annotations

import math

from vshmem_lab.analysis import Table
from vshmem_lab.text import quantity

LABEL, VALUE = 38, 9
EIGHTHS = " ▏▎▍▌▋▊▉"


def bars(table: Table, width: int = 80, *, plain: bool = False) -> list[str]:
    """A line for each that was measured, no wider than that. `plain`: of ASCII only.

    As in the plot, bars are logarithmic where one is over twenty times as long as another.
    """
    shown = [line for line in table.lines if line.summary and line.summary.median > 0]
    if not shown:
        return []
    values = [line.summary.median for line in shown]
    least, most = min(values), max(values)
    logarithmic = least < most / 20
    room = max(width - LABEL - VALUE - 2, 8)
    out = []
    for line, value in zip(shown, values, strict=True):
        part = value / most
        if logarithmic:
            part = math.log(3 * value / least) / math.log(3 * most / least)
        name = line.contender + (" (the floor)" if line.floor else "")
        name += f", {line.sized}" if line.size else ""
        found = quantity(value, table.unit)
        out.append(f"{_cut(name):<{LABEL}} {found:>{VALUE}} {_bar(part * room, plain)}")
    if logarithmic:
        out.append(f"{'':<{LABEL + VALUE}}  (bars are logarithmic)")
    return out


def _cut(name: str) -> str:
    return name if len(name) <= LABEL else name[: LABEL - 2] + ".."


def _bar(length: float, plain: bool) -> str:
    if plain:
        return "#" * round(length)
    whole, rest = divmod(round(length * 8), 8)
    return "█" * whole + EIGHTHS[rest].strip()
