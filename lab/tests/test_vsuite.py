"""The suite `vsuite`: programs answer rightly, and a machine is as it was after each change."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from vshmem_lab import answers, paths, stats
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.environments import NATIVE
from vshmem_lab.features import vsuite as papers
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.process import run
from vshmem_lab.report.grid import as_text
from vshmem_lab.report.vsuite import supplement
from vshmem_lab.runners import vsuite
from vshmem_lab.runners.dwarfs import parse
from vshmem_lab.suites.vsuite import ALL, CASES, GUEST, REMEDIES, counts

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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [7, 503])
def test_deduplication_answers_rightly(threads: int, size: int) -> None:
    try:
        paths.build_programs("dedup")
    except Missing as missing:
        pytest.skip(str(missing))
    program = str(paths.programs() / "dedup-openmp")
    ((_, _, _, answer),) = parse(
        run([program, "-p", str(threads), "-t", "0.001", "dedup", str(size)])
    )
    answers.check("dedup", size, threads, answer)


@pytest.mark.parametrize("what", ["compress", "make", "validate", "dbench"])
def test_stock_programs_work(what: str, tmp_path: Path) -> None:
    program = {"validate": "xmllint", "compress": "zstd"}.get(what, what)
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    for number in range(3):
        (tmp_path / f"{number}.c").write_text(f"int number{number};\n")
    done = subprocess.run([STOCK, what, "2", "2", tmp_path], capture_output=True, text=True)
    ((found, size, value, answer),) = parse(done.stdout)
    assert (found, size, answer) == (what, 2, 2.0)
    assert value > 0
    (profile,) = vsuite.PROFILE.findall(done.stdout)
    parts = dict(word.split("=") for word in profile.split())
    assert sum(int(parts[one]) for one in ("user", "kernel", "idle", "steal")) in range(98, 103)


def test_what_was_not_made_rightly_fails(tmp_path: Path) -> None:
    (tmp_path / "wrong.c").write_text("no C")
    done = subprocess.run([STOCK, "make", "1", "1", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "wrong.c" in done.stderr


COUNTER = """#!/bin/sh
out=/dev/stderr
while [ "$1" != -- ] && [ "$1" != true ]; do
    [ "$1" != -o ] || out=$2
    shift
done
echo '{}' >"$out"
[ "$1" != -- ] || shift
"$@"
"""


def test_counts_of_the_processor_are_told_where_there_are_some(tmp_path: Path) -> None:
    counter = tmp_path / "perf"
    line = "7,,cycles,1,100.00,,"
    counter.write_text(COUNTER.format(line))
    counter.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = vsuite.SCRIPTS / "profile.sh"
    done = run([str(script), "true"], {"PATH": path})
    assert " cycles=7" in done
    failed = subprocess.run([script, "false"], capture_output=True, text=True)
    assert failed.returncode == 1


def test_what_there_is_not_fails() -> None:
    assert subprocess.run([STOCK, "dig", "2", "2"], capture_output=True).returncode == 2
    case = next(case for case in CASES if case.name == "gmake")
    turn = Turn(case, case.contenders[0], 4)
    with pytest.raises(Failed, match="did not print"):
        vsuite.readings("make 3 1000 3", turn)
    said = "vm0: profile 9 user=80 kernel=20\nvm0: make 4 1000 4"
    assert vsuite.readings(said, turn) == [Reading(1000.0, profile="user=80 kernel=20")]


def test_machines_have_the_remedies_that_their_names_say() -> None:
    names = {
        place: [change.__name__ for change in vsuite.changes(REMEDIES[place])] for place in REMEDIES
    }
    assert names[GUEST] == ["unbound", "slow_clock"]
    assert names["guest, cm"] == ["slow_clock"]
    assert names["guest, vtime and idle"] == ["unbound", "idle_daemon"]
    assert names[ALL] == ["idle_daemon"]
    assert counts(1) == (1,)
    assert counts(6) == (1, 2, 4, 6)


def test_processors_are_bound_again_after_a_turn() -> None:
    class Bound:
        def pids(self) -> list[int]:
            return [os.getpid()]

    before = os.sched_getaffinity(0)
    thread = threading.get_native_id()
    comm = Path(f"/proc/self/task/{thread}/comm")
    name = comm.read_text()
    comm.write_text("CPU 0/TCG")
    try:
        assert vsuite.processors(os.getpid()) == [thread]
        with vsuite.unbound(Bound()) as notes:
            assert notes == ["not bound"]
        assert os.sched_getaffinity(0) == before
    finally:
        comm.write_text(name)


def _table(name: str, count: int, values: dict[str, float], unit: str = "ns") -> Table:
    lines = []
    for contender, value in values.items():
        line = Line(contender, 1, False, False, "", "")
        line.summary = stats.summarize(np.array([value] * 8))
        line.accelerator = "" if contender == NATIVE else "tcg"
        line.profile = {"kernel": value / 10, "idle": 5.0}
        lines.append(line)
    environment = f"{count} processor{'s' if count > 1 else ''}"
    return Table("vsuite", name, environment, unit, "", lines, 8, 0, 0, None)


def test_the_papers_figures_stand_beside_ours() -> None:
    values = {NATIVE: 10.0, GUEST: 400.0, "guest, vtime": 200.0, "guest, vtime and idle": 100.0}
    slower = {NATIVE: 5.0, GUEST: 300.0, "guest, vtime": 200.0, ALL: 100.0}
    rates = {NATIVE: 90.0, GUEST: 10.0, "guest, vtime": 40.0}
    tables = [
        _table("gmake", 1, values),
        _table("gmake", 2, slower),
        _table("dbench", 2, rates, "MB/s"),
    ]
    figure1, gains, kernel, table2, idle, second, tlb = supplement(Run("r", {}, tables))
    gmake = dict(zip(figure1.head, figure1.rows[0], strict=True))
    assert (gmake["native, 2"], gmake["guest, 2"]) == ("2", "1.33")
    assert gmake["slower than native, 2"] == "-", "what is emulated is compared with nothing else"
    assert gmake["paper, hardware-assisted"] == "13 %, 36 % by 32"
    rows = {row[0]: dict(zip(gains.head, row, strict=True)) for row in gains.rows}
    assert (rows["gmake"]["vtime"], rows["gmake"]["all"], rows["gmake"]["idle"]) == (
        "1.5",
        "3",
        "-",
    )
    assert rows["dbench"]["vtime"] == "4", "more is better"
    assert rows["geometric mean"]["vtime"] == "2.45"
    assert rows["paper, figure 10 (hardware-assisted)"]["vtime"] == "1.26 (1.09 to 1.44)"
    cells = dict(zip(kernel.head, kernel.rows[0], strict=True))
    assert (cells["acpi_pm, 2"], cells["tsc, 2"]) == ("30 %", "20 %")
    assert set(cells) == {"application", "acpi_pm, 1", "tsc, 1", "acpi_pm, 2", "tsc, 2"}
    assert dict(zip(table2.head, table2.rows[0], strict=True))["Xen, 8"] == "57.47 %"
    assert "another quantity" in table2.notes[0]
    for gap in (second, tlb):
        assert gap.rows == [] and gap.notes[0].startswith("A gap: ")
    assert [grid.emulated for grid in (kernel, table2, second)] == [True, False, False]
    assert dict(zip(idle.head, idle.rows[0], strict=True))["idle, guest"] == "5 %"
    assert supplement(Run("r", {}, [])) == []
    assert {case.name for case in CASES} == set(papers.SLOWER) == set(papers.EMULATED_TIME)


def test_misses_have_tables_where_processors_count_them() -> None:
    table = _table("gmake", 2, {NATIVE: 10.0, GUEST: 20.0})
    table.lines[0].profile |= {"l2_rqsts.miss": 1234.0, "iTLB-load-misses": 77.0}
    table.lines[1].profile |= {"l2_cache_req_stat.ic_dc_miss_in_l2": 5678.0}
    *_, second, tlb = supplement(Run("r", {}, [table]))
    cells = dict(zip(second.head, second.rows[0], strict=True))
    assert (cells[NATIVE], cells[GUEST], cells[ALL]) == ("1,234", "5,678", "-")
    assert dict(zip(tlb.head, tlb.rows[0], strict=True))[NATIVE] == "77"
    assert not any(note.startswith("A gap") for note in (*second.notes, *tlb.notes))
    assert "Figure 4" in as_text(second)


@pytest.mark.parametrize("what", ["histogram", "wordcount", "regression"])
def test_a_large_input_is_read_again_and_again(what: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(answers, "HELD", {"histogram": 1000, "wordcount": 1000})
    folder = paths.LAB / "src"
    sources = [folder / "vsuite" / f"{what}-openmp.c"]
    sources += [folder / "dwarfs" / name for name in ("measure.c", "team-openmp.c")]
    out = tmp_path / what
    flags = ["-fopenmp", "-O2", "-DHELD=1000", "-I", str(folder / "dwarfs"), "-std=gnu11"]
    run(["cc", *flags, "-o", str(out), *map(str, sources), "-lm"])
    for size in (1000, 7000):
        said = run([str(out), "-p", "3", "-t", "0.001", what, str(size)])
        ((_, _, _, answer),) = parse(said)
        answers.answer.cache_clear()
        answers.check(what, size, 3, answer)
    answers.answer.cache_clear()
    with pytest.raises(Failed, match="a multiple of what is held"):
        run([str(out), what, "1500"])


def test_answers_of_many_points_are_those_of_a_period() -> None:
    many = answers._regression(5000)
    answers.PERIOD, before = 5001, answers.PERIOD
    try:
        assert abs(answers._regression(5000) - many) <= answers.ROUNDING * abs(many)
    finally:
        answers.PERIOD = before


def test_inputs_are_so_large_that_a_run_takes_a_second() -> None:
    """By what an operation took of two processors in the kept run of 2026-11-26, in nanoseconds."""
    took = {"histogram": 0.758, "wordcount": 9.36, "linear regression": 0.822}
    took |= {"streamcluster": 89.5, "dedup": 26e6 / 1024, "compress": 6e6, "XML-validation": 33e6}
    took |= {"gmake": 362e6, "dbench": 1e9}
    sizes = {case.name: case.sizes[0] for case in CASES}
    assert set(took) == set(sizes)
    assert all(took[name] * size >= 1e9 for name, size in sizes.items())


class Machine:
    """A machine that has a clock source, and runs a daemon."""

    names = ("vm0",)

    def __init__(self, daemon: str = "", offers: tuple[str, ...] = ("acpi_pm",)) -> None:
        self.clock, self._daemon, self._offers = "tsc", daemon, offers

    def do(self, _action: str, *words: str, what: str, within: float = 0) -> str:
        before = self.clock
        script = words[-1]
        if "echo" in script:
            asked = script.partition("echo ")[2].split()[0]
            self.clock = asked if asked in (*self._offers, "tsc") else self.clock
        return f"{before}\n"

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


# It may be told to end while it says something.
DAEMON = """
import os, signal, sys, time
def end(*_):
    os.write(1, b"   2 s  processor 0: left to idle: something outside took 9 % of a second\\n")
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
