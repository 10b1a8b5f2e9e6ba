"""The driver: turns, repetitions, failures, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path

import pytest
from fakes import BASE, FLOOR, OURS, THEIRS, Fake, Silent, about, all_fake, case, finder
from vshmem_lab import analysis, store
from vshmem_lab.driver import TRIES, Driver, order
from vshmem_lab.model import Failed, Missing, Reading
from vshmem_lab.report.grid import text_of
from vshmem_lab.store import Store


def names(turns) -> list[str]:
    return [f"{turn.contender.name}{turn.size or ''}" for turn in turns]


def play(folder: Path, find, *cases, repetitions: int = 4) -> tuple[Silent, list[dict[str, str]]]:
    kept = Store.create(folder, about(cases, repetitions))
    progress = Silent()
    Driver(find, kept, repetitions, 0.1, progress).run(cases)
    return progress, store.read_rows(folder)


def test_contenders_take_turns() -> None:
    turns = case(OURS, THEIRS, sizes=(8, 64))
    assert names(order(turns, 0)) == ["Vshmem8", "Vshmem64", "kernel8", "kernel64"]
    assert names(order(turns, 1)) == ["kernel64", "kernel8", "Vshmem64", "Vshmem8"]


def test_the_floor_is_at_both_ends() -> None:
    turns = case(FLOOR, OURS, THEIRS, across=True)
    assert names(order(turns, 0)) == ["bare", "Vshmem", "kernel", "bare"]
    assert names(order(turns, 1)) == ["bare", "kernel", "Vshmem", "bare"]


def test_the_floor_has_one_size() -> None:
    turns = case(FLOOR, OURS, sizes=(8, 64))
    assert names(order(turns, 0)) == ["bare8", "Vshmem8", "Vshmem64"]


def test_each_repetition_is_kept(tmp_path: Path) -> None:
    progress, rows = play(tmp_path / "run", all_fake(), case(), case(name="once", once=True))
    assert len(rows) == 4 * 2 + 1 * 2
    assert progress.done == 4 + 1
    assert {row["placement"] for row in rows} == {"here"}


def test_turns_of_one_runner_go_together(tmp_path: Path) -> None:
    both = Fake(most=3)
    play(
        tmp_path / "run", all_fake(ours=both), case(OURS, THEIRS, sizes=(1, 2, 3, 4)), repetitions=1
    )
    assert [len(call) for call in both.calls] == [1, 3, 1]  # the first is the warm-up


def test_unsteady_repetitions_are_repeated(tmp_path: Path) -> None:
    # Each repetition measures the floor twice, after one warm-up: the second one meets a move.
    moves = Fake(alter=lambda _, call: 500.0 if call == 5 else 50.0)
    _, rows = play(tmp_path / "run", all_fake(floor=moves), case(FLOOR, OURS, across=True))
    unsteady = {row["repetition"] for row in rows if row["steady"] == "False"}
    assert unsteady == {"1"}
    (table,) = analysis.load(tmp_path / "run").tables
    assert (table.repetitions, table.unsteady) == (4, 1)


def test_a_machine_that_is_never_steady_ends(tmp_path: Path) -> None:
    wild = Fake(alter=lambda _, call: 50.0 * 2**call)
    _, rows = play(tmp_path / "run", all_fake(floor=wild), case(FLOOR, OURS, across=True))
    assert len({row["repetition"] for row in rows}) == TRIES * 4
    (table,) = analysis.load(tmp_path / "run").tables
    assert table.lines[1].summary.count == TRIES * 4
    assert (table.unsteady, table.moved) == (0, TRIES * 4)


class Clock:
    """Time that passes only while something is measured: so many seconds a turn, by contender."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds
        monkeypatch.setattr("vshmem_lab.driver.time.monotonic", lambda: self.now)
        monkeypatch.setattr("vshmem_lab.driver.time.time", lambda: self.now)

    def alter(self, turn, _: int) -> float:
        """A value; the time that its turn takes is over."""
        self.now += self._seconds[turn.contender.name]
        return 100.0


def rounds(
    tmp_path: Path, clock: Clock, until: float, *cases, repetitions: int = 12
) -> dict[str, int]:
    """How many repetitions each case has had."""
    find = all_fake(ours=Fake(alter=clock.alter), theirs=Fake(alter=clock.alter))
    kept = Store.create(tmp_path / "run", about(cases, repetitions))
    progress = Silent()
    Driver(find, kept, repetitions, 0.1, progress, until).run(cases)
    assert progress.done == sum(1 if one.once else repetitions for one in cases)
    return {one.name: kept.repetitions(one)[1] for one in cases}


COLD = {"warm": False}


def test_a_case_has_as_many_repetitions_as_its_paper(tmp_path: Path) -> None:
    often, usual = case(name="often", runs=5), case(name="usual")
    _, rows = play(tmp_path / "run", all_fake(), often, usual, repetitions=2)
    counts = {
        name: {r["repetition"] for r in rows if r["case"] == name} for name in ("often", "usual")
    }
    assert {name: len(found) for name, found in counts.items()} == {"often": 5, "usual": 2}


def test_moved_repetitions_do_not_count_where_a_paper_has_few(tmp_path: Path) -> None:
    # Of three that are to be steady one is not, so there are four.
    moves = Fake(alter=lambda _, call: 500.0 if call == 5 else 50.0)
    few = case(FLOOR, OURS, across=True, runs=3)
    play(tmp_path / "run", all_fake(floor=moves), few, repetitions=12)
    run = analysis.load(tmp_path / "run")
    assert [(table.repetitions, table.unsteady) for table in run.tables] == [(3, 1)]
    assert "12 repetitions of 0.1 s a turn, or as many as the papers had" in text_of(run)


def test_a_case_has_its_fewest_repetitions_however_little_time_there_is(
    tmp_path: Path, monkeypatch
) -> None:
    clock = Clock(monkeypatch, Vshmem=100, kernel=100)
    few, one = case(name="few", least=5, **COLD), case(name="one", **COLD)
    assert rounds(tmp_path, clock, 1, few, one) == {"few": 5, "one": 1}


@pytest.mark.parametrize(
    ("until", "ours", "theirs"),
    [
        (0, 1, 1),  # Each case is measured once, whatever it takes.
        (15, 1, 5),  # The cheaper one has more of it.
        (40, 3, 10),  # When that is enough for a verdict, the other one has its turns,
        (200, 12, 12),  # and with enough time all of them.
        (99, 9, 9),
    ],
)
def test_time_is_shared_out(
    tmp_path: Path, monkeypatch, until: float, ours: int, theirs: int
) -> None:
    cases = (case(OURS, name="ours", **COLD), case(THEIRS, name="theirs", **COLD))
    clock = Clock(monkeypatch, Vshmem=10, kernel=1)
    assert rounds(tmp_path, clock, until, *cases) == {"ours": ours, "theirs": theirs}
    assert clock.now <= max(until, 11)


def test_a_resumed_run_knows_what_takes_long(tmp_path: Path, monkeypatch) -> None:
    cases = (case(THEIRS, name="theirs", **COLD), case(OURS, name="ours", **COLD))
    clock = Clock(monkeypatch, Vshmem=10, kernel=1)
    assert rounds(tmp_path, clock, 0, *cases) == {"theirs": 1, "ours": 1}
    again = Store.resume(tmp_path / "run")
    find = all_fake(ours=Fake(alter=clock.alter), theirs=Fake(alter=clock.alter))
    Driver(find, again, 3, 0.1, Silent(), until=clock.now + 9).run(cases[1:])
    assert again.repetitions(cases[1])[1] == 1


def test_cases_that_share_a_job_share_a_round(tmp_path: Path, monkeypatch) -> None:
    both = dataclasses.replace(OURS, runner="theirs")
    cases = (case(OURS, name="a", **COLD), case(OURS, THEIRS, name="b", **COLD))
    cases += (case(both, name="c", **COLD), case(both, name="once", once=True, **COLD))
    clock = Clock(monkeypatch, Vshmem=10, kernel=1)
    assert rounds(tmp_path, clock, 90, *cases) == {"a": 2, "b": 2, "c": 2, "once": 1}


def test_only_the_first_repetition_is_preceded_by_a_warm_up(tmp_path: Path, monkeypatch) -> None:
    clock = Clock(monkeypatch, Vshmem=1, kernel=1)
    assert rounds(tmp_path, clock, 100, case(name="a"), repetitions=4) == {"a": 4}
    assert clock.now == 2 * (1 + 4)


def test_what_is_missing_is_shown_with_the_reason(tmp_path: Path) -> None:
    find = all_fake(theirs=Missing("It is not installed."))
    play(tmp_path / "run", find, case())
    run = analysis.load(tmp_path / "run")
    ours, theirs = run.tables[0].lines
    assert ours.summary.median == BASE["Vshmem"]
    assert theirs.summary is None and theirs.error == "It is not installed."
    assert "missing: It is not installed." in text_of(run)


class Crashes(Fake):
    """Fails for one contender."""

    def measure(self, turns, seconds):
        """Also as one of several turns."""
        found = super().measure(turns, seconds)
        if any(turn.contender.name == "bad" for turn in turns):
            raise Failed("bad was killed by signal 11")
        return found


def test_a_crash_costs_only_who_crashed(tmp_path: Path) -> None:
    bad = dataclasses.replace(THEIRS, name="bad", runner="ours")
    crashes = Crashes(most=9)
    play(tmp_path / "run", all_fake(ours=crashes), case(OURS, bad, THEIRS))
    lines = analysis.load(tmp_path / "run").tables[0].lines
    assert [line.summary is None for line in lines] == [False, True, False]
    assert "signal 11" in lines[1].error
    # The warm-up and one repetition tried it; then no more.
    tried = [call for call in crashes.calls if [t.contender.name for t in call] == ["bad"]]
    assert len(tried) == 2


class Stops(Fake):
    """Is interrupted at its nth call."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def measure(self, turns, seconds) -> list[Reading]:
        """As by ctrl-C."""
        if len(self.calls) == self._at:
            raise KeyboardInterrupt
        return super().measure(turns, seconds)


@pytest.mark.parametrize("at", [0, 1, 3, 5, 8])
def test_an_interrupted_run_goes_on_to_the_same_table(tmp_path: Path, at: int) -> None:
    cases = (case(), case(name="pong"))
    play(tmp_path / "whole", all_fake(), *cases)
    folder = tmp_path / "whole-too"
    kept = Store.create(folder / "whole", about(cases, 4))
    with pytest.raises(KeyboardInterrupt):
        Driver(all_fake(theirs=Stops(at)), kept, 4, 0.1, Silent()).run(cases)
    with (folder / "whole" / "samples.csv").open("a") as file:
        file.write("toys,ping,nat")  # a write that was cut off
    again = Store.resume(folder / "whole")
    Driver(all_fake(), again, 4, 0.1, Silent()).run(cases)
    texts = [text_of(analysis.load(f)) for f in (tmp_path / "whole", folder / "whole")]
    assert texts[0] == texts[1]


def test_a_full_disk_is_reported_and_what_was_kept_stays(tmp_path: Path) -> None:
    turns = case()
    kept = Store.create(tmp_path / "run", about([turns]))
    Driver(all_fake(), kept, 1, 0.1, Silent()).run([turns])
    samples = tmp_path / "run" / "samples.csv"
    before = samples.read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for a part of the next repetition, as on a disk that fills up.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 60, limits[1]))
    try:
        with pytest.raises(Failed, match="could not be written: .*--resume"):
            Driver(all_fake(), kept, 2, 0.1, Silent()).run([turns])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert samples.read_text() == before


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", about([]))
    with pytest.raises(Failed, match="exists"):
        Store.create(tmp_path / "run", about([]))


def test_runners_are_found_when_they_are_needed(tmp_path: Path) -> None:
    asked = []

    def find(name: str) -> Fake:
        asked.append(name)
        return finder(ours=Fake(), theirs=Fake())(name)

    play(tmp_path / "run", find, case())
    assert set(asked) == {"ours", "theirs"}
