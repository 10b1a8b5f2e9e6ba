"""The suite `bigdata`: what Spark says is judged, and jobs are before and after it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from vshmem_lab import paths
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.runners import bigdata
from vshmem_lab.suites.bigdata import CASES, MACHINES, TEXT

COUNTED, *JOBS = CASES
SMALL = 7000  # KiB: of which no file is a multiple of what is written at a time


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """What the text's words are."""
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    return bigdata.text(SMALL, tmp_path)[1]


def test_the_answer_is_of_the_files_words(counted: int, tmp_path: Path) -> None:
    files = sorted((tmp_path / f"text-{SMALL}").iterdir())
    assert len(files) == MACHINES
    words = " ".join(file.read_text() for file in files).split()
    found = sorted(Counter(words).items())
    assert zlib.crc32(repr(found).encode()) == counted
    assert 1 <= sum(file.stat().st_size for file in files) / (SMALL * 1024) < 1.02
    lines = [line.split(" ") for file in files for line in file.read_text().splitlines()]
    assert all(len(line) <= bigdata.LINE and all(line) for line in lines)


def test_the_text_is_large_and_counted_five_times_whatever_the_time() -> None:
    assert TEXT >= 256 * 1024 and MACHINES == 4
    assert {(case.runs, case.least) for case in CASES} == {(5, 5)}
    assert {one.name for one in COUNTED.contenders} == {"native", "guest", "guest, all remedies"}


class Said(bigdata.Spark):
    """A cluster whose job prints something."""

    def __init__(self, said: str) -> None:
        self._said, self.parts = said, []

    def hosts(self) -> list[str]:
        return ["vm0", "vm1"]

    @contextlib.contextmanager
    def part(self, words: Sequence[str]) -> Iterator[subprocess.Popen]:
        self.parts.append(tuple(words[:3]))
        argv = [sys.executable, "-c", f"print({self._said!r})"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            yield process

    def seated(self, found: list[Reading]) -> list[Reading]:
        return found


def test_a_word_count_is_judged(counted: int) -> None:
    turn = Turn(COUNTED, COUNTED.contenders[1], SMALL)
    good = Said(f"spark 2\nwordcount 9 1000 {counted}")
    assert good.measure([turn], 0.1) == [Reading(1000.0)]
    assert [part[:2] for part in good.parts] == [
        ("master", "vm0"),
        ("worker", "vm0"),
        ("worker", "vm1"),
        ("count", "vm0"),
    ]
    for said, why in (
        (f"spark 2\nwordcount 9 1000 {counted + 1}", "instead of"),
        (f"spark 1\nwordcount 9 1000 {counted}", "1 of 2 executors"),
        ("Exception", "counted nothing: Exception"),
    ):
        with pytest.raises(Failed, match=why):
            Said(said).measure([turn], 0.1)


def test_jobs_are_before_and_after_the_word_count(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    class Job:
        def __init__(self, name: str) -> None:
            self._name = name

        def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
            (turn,) = turns
            assert turn.contender.words == ("meet", "reduction", str(MACHINES))
            order.append(self._name)
            return [Reading(float(len(order)))]

    class Counts:
        def count(self, size: int) -> float:
            order.append("Spark")
            return 1.0

    one = bigdata.OneCluster.__new__(bigdata.OneCluster)
    one._spark = Counts()
    one._models = {"MPI": Job("MPI"), "System V": Job("System V")}
    for jobs in JOBS:
        order.clear()
        turns = [Turn(jobs, contender, jobs.sizes[0]) for contender in reversed(jobs.contenders)]
        after, before = one.measure(turns, 0.1)
        model = turns[0].contender.words[0]
        assert order == [model, "Spark", model]
        assert (before.value, after.value) == (1.0, 3.0)


def test_spark_that_is_not_installed_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "target", lambda: tmp_path)
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    with pytest.raises(Missing, match="pip install"):
        bigdata.packages()
