"""The suite `vsuite`: programs answer rightly, and a machine is as it was after each change."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from vshmem_lab import answers, paths
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.process import run
from vshmem_lab.runners import vsuite
from vshmem_lab.runners.dwarfs import parse
from vshmem_lab.suites.vsuite import CASES

STOCK = paths.LAB / "src" / "vsuite" / "stock.sh"


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 5003])
def test_kernels_answer_rightly(threads: int, size: int) -> None:
    paths.build_programs("vsuite")
    for what in ("histogram", "wordcount", "regression", "kmeans"):
        # It has eight centres, which are its first points.
        n = max(size, 8) if what == "kmeans" else size
        program = str(paths.programs() / f"{what}-openmp")
        said = run([program, "-p", str(threads), "-t", "0.001", what, str(n)])
        ((found, of, _, answer),) = parse(said)
        assert (found, of) == (what, n)
        answers.check(what, n, threads, answer)


@pytest.mark.parametrize("what", ["compress", "make", "validate"])
def test_stock_programs_work(what: str) -> None:
    if what == "validate" and shutil.which("xmllint") is None:
        pytest.skip("xmllint is not installed")
    done = subprocess.run([STOCK, what, "2", "2"], capture_output=True, text=True)
    ((found, size, ns, answer),) = parse(done.stdout)
    assert (found, size, answer) == (what, 2, 2.0)
    assert ns > 1000


def test_what_there_is_not_fails() -> None:
    assert subprocess.run([STOCK, "dig", "2", "2"], capture_output=True).returncode == 2
    case = next(case for case in CASES if case.name == "make")
    turn = Turn(case, case.contenders[0], 2)
    with pytest.raises(Failed, match="did not print"):
        vsuite.readings("make 3 1000 3", turn)
    assert vsuite.readings("vm0: make 2 1000 2", turn) == [Reading(1000.0)]


class Machine:
    """A machine that has a clock source, and runs a daemon."""

    names = ("vm0",)

    def __init__(self, daemon: str = "", offers: tuple[str, ...] = ("acpi_pm",)) -> None:
        self.clock, self._daemon, self._offers = "tsc", daemon, offers

    def do(self, _action: str, *words: str, what: str, within: float = 0) -> str:
        script = words[-1]
        if script.startswith("echo"):
            asked = script.split()[1]
            self.clock = asked if asked in (*self._offers, "tsc") else self.clock
        return f"{self.clock}\n"

    @contextlib.contextmanager
    def start(self, *_words: str) -> Iterator[subprocess.Popen]:
        argv = [sys.executable, "-c", self._daemon]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            yield process
            process.kill()


def test_a_slow_clock_is_planted_and_taken_away() -> None:
    machine = Machine()
    with pytest.raises(Failed, match="a turn"), vsuite.slow_clock(machine):
        assert machine.clock == "acpi_pm"
        raise Failed("a turn failed")
    assert machine.clock == "tsc"
    other = Machine(offers=())
    with pytest.raises(Missing, match="no clock source"), vsuite.slow_clock(other):
        pass
    assert other.clock == "tsc"


DAEMON = """
import signal, sys, time
def end(*_):
    print("   2 s  processor 0: left to idle: something outside took 9 % of a second", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("Whether others want a core is told by steal time.", flush=True)
time.sleep(60)
"""


def test_the_daemon_runs_for_the_turns_and_tells_of_rests() -> None:
    machine = Machine(DAEMON)
    with vsuite.idle_daemon(machine) as notes:
        assert notes == []
    assert notes == ["the daemon rested 1 times"]
    refuses = Machine("print('vshmem: idle processors poll already (haltpoll)')")
    with pytest.raises(Missing, match="poll already"), vsuite.idle_daemon(refuses):
        pass
