"""The dwarfs: every model answers rightly, also by unequal shares, and a wrong one is found."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from vshmem_lab import answers, builds, paths
from vshmem_lab.model import Case, Contender, Failed, Turn
from vshmem_lab.runners import dwarfs
from vshmem_lab.suites import dwarfs as suite
from vshmem_lab.topology import pair

PROCESSES = 3
# Sizes that three processes share out unequally, or that leave one of them without any.
PROBLEMS = (
    ("blas-float", ("dot", "vector", "matrix"), (1, 2, 37)),
    ("blas-double", ("dot", "vector", "matrix"), (1, 2, 37)),
    ("laplace", ("laplace",), (3, 4, 11)),
    ("pi", ("pi",), (1, 2, 1001)),
    ("md", ("2d-10", "3d-10"), (1, 2, 17)),
    ("meet", ("barrier", "reduction"), (1, 5)),
)


def turns(dwarf: str, whats: tuple[str, ...], sizes: tuple[int, ...]) -> list[Turn]:
    """A turn of each problem."""
    found = []
    for what in whats:
        one = Contender("it", "", (dwarf, what, str(PROCESSES)))
        found += [Turn(Case("dwarfs", what, "native", (one,), sizes), one, size) for size in sizes]
    return found


SET_UPS = (
    ("laplace", "laplace", 11),
    ("pi", "pi", 10),
    ("md", "3d-10", 17),
    ("blas-double", "dot", 2),
)


def set_up(runner: dwarfs.Dwarf) -> None:
    """Set-up by itself and with a run; a wrong answer fails."""
    for dwarf, what, size in SET_UPS:
        for how in ("apart", "together"):
            words = (dwarf, what, str(PROCESSES), how)
            one = Contender("it", "", words)
            turn = Turn(Case("dwarfs", what, "native", (one,), (size,)), one, size)
            first, second = runner.measure([turn, turn], 0.001)
            assert first.value > 0 and second.value > 0


def play(runner: dwarfs.Dwarf) -> None:
    """All problems; a wrong answer fails."""
    set_up(runner)
    for problem in PROBLEMS:
        asked = turns(*problem)
        readings = runner.measure(asked, 0.001)
        assert len(readings) == len(asked)
        assert all(reading.value > 0 for reading in readings)


def test_openmp_answers_rightly() -> None:
    threads = dwarfs.Threads(pair())
    play(threads)
    asked = turns("laplace", ("laplace-atomic",), (3, 4, 11))
    assert all(reading.value > 0 for reading in threads.measure(asked, 0.001))


def test_set_up_is_timed_apart_and_together() -> None:
    """A job's time is that of its set-up and of its run: here mostly the latter."""
    found = {}
    runner = dwarfs.Processes("sysv", {}, pair())
    for how in ("apart", "together"):
        one = Contender("it", "", ("pi", "pi", "2", how))
        turn = Turn(Case("dwarfs", "pi", "native", (one,), (5_000_000,)), one, 5_000_000)
        found[how] = min(reading.value for reading in runner.measure([turn] * 3, 0.001))
    assert found["together"] > 3 * found["apart"] > 0


def test_the_papers_sizes_are_there() -> None:
    cases = {case.name: case for case in suite.CASES if case.environment == "native"}
    for dimensions in "23":
        for steps in (10, 100):
            name = f"molecular dynamics, {dimensions} dimensions, {steps} steps, 2 processes"
            assert {1, 35, 50} <= set(cases[name].sizes)
    laplace = cases["Laplace by Jacobi, 1,000 iterations, 2 processes"]
    assert {suite.OPENMP, suite.ATOMIC} < {one.name for one in laplace.contenders}
    for name in ("pi by Simpson's rule", "molecular dynamics, 3 dimensions, 100 steps"):
        assert f"{name}, 2 processes, {suite.APART}" in cases
        assert f"{name}, 2 processes, {suite.TOGETHER}" in cases


def test_system_v_answers_rightly() -> None:
    play(dwarfs.Processes("sysv", {}, pair()))


@pytest.mark.parametrize("model", ["sysv", "vshmem"])
def test_vshmem_answers_rightly(model: str) -> None:
    with builds.Pool(f"lab-{os.getpid()}-dwarfs", builds.current()) as pool:
        play(dwarfs.Processes(model, pool.environment(), pair()))


@pytest.mark.skipif(not shutil.which("mpicc"), reason="mpicc is not installed")
def test_mpi_answers_rightly() -> None:
    play(dwarfs.Ranks(pair()))


@pytest.mark.parametrize(
    ("what", "wrong"),
    [("dot", 1.0), ("matrix", 1.0), ("laplace", 1e-4), ("pi", 1e-6), ("3d-10", 1e-4)],
)
def test_a_wrong_answer_is_found(what: str, wrong: float) -> None:
    right = answers.answer(what, 20, 2)
    answers.check(what, 20, 2, right)
    for found in (right + wrong, right - wrong, float("nan")):
        with pytest.raises(Failed, match=f"{what} of 20 is wrong"):
            answers.check(what, 20, 2, found)


def test_a_program_that_answers_wrongly_fails_its_turn(tmp_path: Path, monkeypatch) -> None:
    runner = dwarfs.Threads(pair())
    program = tmp_path / "pi-openmp"
    program.write_text("#!/bin/sh\necho pi 7 100 3.2\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    with pytest.raises(Failed, match="pi of 7 is wrong: 3.2"):
        runner.measure(turns("pi", ("pi",), (7,)), 0.001)


def test_a_program_that_answers_something_else_fails_its_turn(tmp_path: Path, monkeypatch) -> None:
    runner = dwarfs.Threads(pair())
    program = tmp_path / "pi-openmp"
    program.write_text("#!/bin/sh\necho pi 8 100 3.14159\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    with pytest.raises(Failed, match="did not print"):
        runner.measure(turns("pi", ("pi",), (7,)), 0.001)


def test_lines_with_and_without_a_machine() -> None:
    said = "vm0: pi 7 12.5 3.14\n[vm1] 3d-10 4 1e+06 -2\nnoise 1 2\n"
    assert dwarfs.parse(said) == [("pi", 7, 12.5, 3.14), ("3d-10", 4, 1e6, -2)]


def test_the_librarys_collectives_are_held_to_those_by_hand_and_to_mpis() -> None:
    meetings = [case for case in suite.CASES if case.name.startswith("1,000 times")]
    assert len(meetings) == 6
    for case in meetings:
        assert {(one.of, one.ours) for one in case.wanted} == {
            ("Vshmem, by hand", "vshmem.h"),
            ("MPI", "vshmem.h"),
        }
        assert {one.of for one in case.wanted} < {one.name for one in case.contenders}
