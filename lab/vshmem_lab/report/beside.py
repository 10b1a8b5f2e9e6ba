"""The tables of what other tools said beside `vshmem doctor`, for the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from vshmem_lab.beside.numad import SECONDS, State
from vshmem_lab.beside.plants import MACHINE
from vshmem_lab.beside.witnesses import DOCTOR, PROFILES, TOOLS

NOTHING = "-"


def tables(file: Path) -> list[str]:
    """Lines of Markdown: each plant, what each tool then said anew, and what numad did."""
    told = json.loads(file.read_text())
    lines = [_row(["planted", *TOOLS]), _row(["---"] * (1 + len(TOOLS)))]
    usual, known = [], {}
    for plant in told["plants"]:
        part, said = plant["part"], plant["said"]
        if plant["name"]:
            # What doctor said of the same check before may only have other words now.
            old = known[part] - {plant["check"]}
            said[DOCTOR] = [line for line in said[DOCTOR] if _check(line) not in old]
            if plant["name"] == MACHINE.name:
                known[part] |= {_check(line) for line in said[DOCTOR]}
            cells = [_cell(said[tool], tool, plant["check"]) for tool in TOOLS]
            lines.append(_row([f"{part}: {plant['name']}", *cells]))
        else:
            known[part] = {_check(line) for line in said[DOCTOR]}
            cells = [_cell(said[tool], tool, "") for tool in TOOLS]
            usual.append(_row([f"{part}: nothing ({PROFILES[part]} is in force)", *cells]))
    lines += [*usual, ""]
    lines += [_row(["numad", "before", f"after {SECONDS} s"]), _row(["---"] * 3)]
    for one in told["numad"]:
        before, after = State(**one["before"]), State(**one["after"])
        lines.append(_row([one["name"], before.said, after.said]))
    versions = [f"* {version}" for version in told["versions"].values()]
    return [*lines, "", "By:", "", *versions, f"* Linux {told['kernel']}, emulated"]


def _check(line: str) -> str:
    return line.partition(": ")[0]


def _cell(said: list[str], tool: str, check: str) -> str:
    """A tool's own words; what doctor says of something else than was planted is said so."""
    words = [line.replace("|", "\\|") for line in said]
    if tool == DOCTOR and check:
        ours = [line for line in words if line.startswith(f"{check}: ")]
        words = ours + [f"and {line}" for line in words if line not in ours]
    return "<br>".join(words) or NOTHING


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
