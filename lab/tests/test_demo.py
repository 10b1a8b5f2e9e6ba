"""What the demo prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import Fake, Missing, Silent, about
from vshmem_lab import analysis
from vshmem_lab.choice import selected
from vshmem_lab.demo import CHOICE, REPETITIONS, conclusion, report
from vshmem_lab.driver import Driver
from vshmem_lab.model import Failed
from vshmem_lab.report.chart import bars
from vshmem_lab.store import Store


def value(turn, call: int) -> float:
    """Milliseconds for TCP, tens of microseconds for the kernel, else microseconds; some noise."""
    name = turn.contender.name
    base = {"TCP": 1e6, "UDP": 2e6}.get(name, 5e4 if name.startswith("kernel") else 1e3)
    return (base + 10 * turn.size) * (1 + 0.01 * (call % 3))


def play(folder: Path, repetitions: int = REPETITIONS, **missing) -> analysis.Run:
    """The demo's cases, measured by nothing."""
    cases = selected(CHOICE)
    store = Store.create(folder / "run", about(cases, repetitions))

    def find(name: str):
        if name in missing:
            raise missing[name]
        return Fake(alter=value)

    Driver(find, store, repetitions, 0.1, Silent()).run(cases)
    return analysis.load(folder / "run")


def test_it_ends_in_sentences_bars_and_paths_of_80_columns(tmp_path: Path) -> None:
    said = report(play(tmp_path), tmp_path).splitlines()
    paths = [line for line in said if str(tmp_path) in line]
    assert all(Path(line.partition(": ")[2]).is_file() for line in paths) and len(paths) == 2
    assert all(len(line) <= 80 for line in said if line not in paths)
    text = " ".join(" ".join(said).split())
    # Each figure, and how far apart they are.
    assert "between the machines: 1.09 µs through the pool, 1.01 ms by TCP, 926 times" in text
    assert re.search(r"64 KiB there and back .*: 663 µs through the pool, 1.67 ms by TCP", text)
    assert "in one kernel: 1.09 µs through the pool, 50.6 µs by the kernel's System V" in text
    assert "noise" not in text and "█" in text
    page = (tmp_path / "report.html").read_text()
    assert page.index("Neither program knows of Vshmem") < page.index("<svg") < page.index("<table")


def test_what_few_repetitions_show_may_be_noise(tmp_path: Path) -> None:
    assert sum("may be noise" in line for line in conclusion(play(tmp_path, 3))) == 3


def test_a_figure_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="TCP was not measured in guest-guest: No network"):
        conclusion(play(tmp_path, network=Missing("No network.")))


def test_bars_are_long_as_their_values_are(tmp_path: Path) -> None:
    tables = play(tmp_path).tables
    for plain in (False, True):
        lines = bars(tables[0], 70, plain=plain)
        assert "logarithmic" in lines.pop() and all(len(line) <= 70 for line in lines)
        lengths = {line[:38].strip(): len(line.rstrip()) for line in lines}
        assert lengths["Vshmem, queues, 8 B"] < lengths["TCP, 8 B"] < lengths["TCP, 64 KiB"]
        assert plain == ("#" in "".join(lines))
