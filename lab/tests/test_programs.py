"""What the programs print is understood, and the suites' tables are consistent."""

from __future__ import annotations

import os
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import OURS, case
from vshmem_lab import paths, priority, process, topology
from vshmem_lab.choice import Choice, selected
from vshmem_lab.cli import parser
from vshmem_lab.model import Contender, Failed, Missing, Reading, Turn
from vshmem_lab.runners import channels, job, lines, mpi_programs, programs
from vshmem_lab.runners.table import Runners
from vshmem_lab.suites.table import SUITES
from vshmem_lab.text import bytes_text, duration, quantity, size


def test_pingpong_lines_with_and_without_a_machine() -> None:
    said = "vm0: queue 8 1234 1 1200 1300 -\n[vm1] segment 65536 99 1\n"
    said += "noise 1 2 3\nudp 65536 5 2 - - -\n"
    found = lines.pongs(said)
    assert [(method, size) for method, size, _ in found] == [
        ("queue", 8),
        ("segment", 65536),
        ("udp", 65536),
    ]
    assert (found[0][2].value, found[0][2].p99, found[0][2].p999) == (1234, 1300, None)


def test_a_real_program_says_what_an_operation_took() -> None:
    assert programs.reading("afl 1200.5\n", "afl") == Reading(1200.5)
    for said in ("", "afl\n", "uwsgi 12\n", "afl 1 2\n"):
        with pytest.raises(Failed, match="did not print"):
            programs.reading(said, "afl")


def test_lines_that_do_not_fit_the_turns_fail() -> None:
    turns = [Turn(case(), Contender("q", "pair", ("queue",)), 8)]
    assert lines.assigned("queue 8 12 1\n", turns, "it")[0].value == 12
    for said in ("", "queue 9 12 1\n", "queue 8 12 1\nqueue 8 12 1\n"):
        with pytest.raises(Failed, match="did not print"):
            lines.assigned(said, turns, "it")


def test_ipcbench_lines() -> None:
    one, other = lines.values("80 ns 90 111 1412\n2.66e+04 ns 2.4e+04 - -\n")
    assert (one.value, one.p999, other.value, other.p50, other.p99) == (
        80,
        1412,
        26600,
        24000,
        None,
    )


def test_mpi_lines() -> None:
    said = "latency     8     1.25  1.20  1.41 us\nbandwidth  4096  310.00  1.00  2.00 MB/s\n"
    found = mpi_programs.Measure.figures(mpi_programs.Measure, said + "noise\n")
    assert found == {("latency", 8): 1250, ("bandwidth", 4096): 310}
    found = mpi_programs.Lammps.figures(mpi_programs.Lammps, "Loop time of 0.25 on 4 procs\n")
    assert found == {("loop", 0): 2.5e8}


def test_figures_of_the_hpc_challenge() -> None:
    summary = {name: "0.5" for name, _ in mpi_programs.Hpcc.SUMMARY.values()}
    said = "".join(f"{name}={value}\n" for name, value in (*summary.items(), ("Success", "1")))
    found = mpi_programs.Hpcc.figures(mpi_programs.Hpcc, said)
    assert set(found) == {(what, 0) for what in mpi_programs.Hpcc.SUMMARY}
    # What it says of a benchmark whose clock stood still.
    stood = said.replace("StarSTREAM_Triad=0.5", "StarSTREAM_Triad=-0.00064")
    assert set(found) - set(mpi_programs.Hpcc.figures(mpi_programs.Hpcc, stood)) == {("stream", 0)}
    with pytest.raises(Failed):
        mpi_programs.Hpcc.figures(mpi_programs.Hpcc, said.replace("Success=1", "Success=0"))


class Played:
    """A place and a program whose jobs measure two operations each."""

    limit, absent = 1.0, {"none": "No such counter."}

    def __init__(self) -> None:
        self.jobs = 0

    def argv(self, turns: Sequence[Turn], seconds: float) -> list[str]:
        """Nothing."""
        return []

    def said(self, program: Played, argv: Sequence[str]) -> str:
        """Counts."""
        self.jobs += 1
        return str(self.jobs)

    def figures(self, said: str) -> dict[tuple[str, int], float]:
        """Two, which tell of which job they are."""
        return {("one", 0): float(said), ("other", 0): 10 * float(said)}

    def seated(self, reading: Reading) -> Reading:
        """As it is."""
        return reading


def test_later_cases_take_what_earlier_jobs_have_measured() -> None:
    played = Played()
    it = job.Job(played, played)
    turns = [
        Turn(None, Contender(what, "", (what,)), 0)
        for what in ("one", "one", "other", "other", "other")
    ]
    found = [reading.value for turn in turns for reading in it.measure([turn], 1)]
    assert found == [1, 2, 10, 20, 30] and played.jobs == 3
    for what, said in (
        ("none", "^No such counter.$"),
        ("other", "did not measure other of size 1"),
    ):
        with pytest.raises(Failed, match=said):
            it.measure([Turn(None, Contender(what, "", (what,)), int(what == "other"))], 1)


def test_machines_weigh_more_though_they_lead_no_session_and_we_do_not() -> None:
    if not priority.allowed():
        pytest.skip("only root gives priority")
    argv = ["sh", "-c", "sleep 96 & echo $!; wait"]
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE) as process:
        try:
            pid, ours = int(process.stdout.readline()), os.getpriority(os.PRIO_PROCESS, 0)
            for one in (pid, os.getpid()):
                priority.make_heavy(one)
            assert os.getpriority(os.PRIO_PROCESS, pid) == -20
            assert os.getpriority(os.PRIO_PROCESS, 0) == ours
        finally:
            os.killpg(process.pid, signal.SIGKILL)


TOPOLOGY = """<topology><object type="Machine"><object type="Package"><object type="L3Cache">
<object type="Core"><object type="PU" os_index="0"/><object type="PU" os_index="4"/></object>
<object type="L2Cache"><object type="Core"><object type="PU" os_index="1"/></object></object>
</object>
<object type="Core"><object type="PU" os_index="2"/></object></object>
<object type="Package"><object type="Core"><object type="PU" os_index="3"/></object></object>
</object></topology>"""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (0, "same processor"),
        (4, "SMT siblings"),
        (1, "same L3"),
        (2, "same socket"),
        (3, "other socket"),
    ],
)
def test_where_processors_sit(other: int, said: str) -> None:
    assert topology.relation(0, other, ET.fromstring(TOPOLOGY)) == said


def test_each_contender_has_a_runner_and_each_limit_a_contender() -> None:
    with Runners((0, 1), 1, 1) as runners:
        for found in (one for suite in SUITES.values() for one in suite):
            names = {contender.name for contender in found.contenders}
            assert len(names) == len(found.contenders), found.label
            assert all(contender.runner in runners.names() for contender in found.contenders)
            assert {wanted.of for wanted in found.wanted if wanted.of} <= names, found.label
            # The papers' Sync compares where memory comes from: no library takes part.
            has_base = any(one.vshmem or one.base for one in found.contenders)
            assert has_base or "Sync" in found.name or found.suite == "sync", found.label
    keys = [(x.suite, x.name, x.environment) for suite in SUITES.values() for x in suite]
    assert len(keys) == len(set(keys))


def test_a_run_is_narrowed_down() -> None:
    narrow = Choice(("sharing",), ("payload",), ("TCP",), ("guest-guest",), (1024,))
    (found,) = selected(narrow)
    assert [contender.name for contender in found.contenders] == ["bare", "TCP"]
    assert found.sizes == (1024,)
    (exact,) = selected(Choice(("sharing",), ("=P and V, uncontended",)))
    assert exact.name == "P and V, uncontended"
    floors = selected(Choice(("rivals",), ("there and back",), ("pipes",)))
    assert {c.floor for c in floors[0].contenders} == {True, False}
    with pytest.raises(Failed, match="Nothing fits"):
        selected(Choice(("sharing",), cases=("no such thing",)))
    with pytest.raises(Failed, match="no suite"):
        selected(Choice(("sport",)))


def test_a_rival_that_is_not_there_is_missing(tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / "channel"
    program.write_text("#!/bin/sh\necho 'missing: no such module' >&2; exit 77\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    monkeypatch.setattr(paths, "build_programs", lambda *_: None)
    turn = Turn(case(), Contender("rival", "channel", ("vsock", "alone", "{size}")), 64)
    rival = channels.Channels("channel", {}, topology.pair())
    with pytest.raises(Missing, match="^no such module$"):
        rival.measure([turn], 0.1)
    program.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    with pytest.raises(Failed, match="vsock alone 64 failed with status 1: broken") as failed:
        rival.measure([turn], 0.1)
    assert not isinstance(failed.value, Missing)


def test_a_package_that_is_not_there_is_named(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "Makefile").write_text("x:\n\t@echo 'missing: libx-dev is not there' >&2; exit 1\n")
    monkeypatch.setattr(paths, "LAB", tmp_path)
    with pytest.raises(Missing, match="^libx-dev is not there$"):
        paths.build_programs("x")
    with pytest.raises(Failed, match="can't be compiled"):
        paths.build_programs("y")


def test_an_earlier_build_takes_its_turns() -> None:
    found = selected(Choice(("sharing",), cases=("SEM_UNDO",), before="/elsewhere"))
    assert [c.name for c in found[0].contenders] == ["kernel", "Vshmem", "Vshmem before"]


def test_programs_that_fail_say_how() -> None:
    with pytest.raises(Failed, match="sh -c exit 3 failed with status 3: it said nothing"):
        process.run(["/bin/sh", "-c", "exit 3"])
    with pytest.raises(Failed, match="was killed by signal 9"):
        process.run(["/bin/sh", "-c", "kill -9 $$"])
    with pytest.raises(Failed, match="hung for 0.2 s"):
        process.run(["/bin/sleep", "9"], limit=0.2)
    with pytest.raises(Missing, match="not installed"):
        process.run(["/no/such/program"])


def test_what_was_started_is_ended() -> None:
    with process.started(["/bin/sh", "-c", "trap '' TERM; exec sleep 99"]) as one:
        assert one.poll() is None
    assert one.poll() is not None


def test_numbers_read_well() -> None:
    assert [duration(ns) for ns in (0.95, 26.7, 4500, 1.2e6, 3e9)] == [
        "0.95 ns",
        "26.7 ns",
        "4.5 µs",
        "1.2 ms",
        "3 s",
    ]
    assert (quantity(None, "ns"), quantity(1234.5, "MB/s")) == ("-", "1,234 MB/s")
    assert [bytes_text(n) for n in (8, 1000, 1024, 4 << 20)] == ["8 B", "1000 B", "1 KiB", "4 MiB"]
    assert (size("64K"), size("8")) == (65536, 8)


def test_the_command_line_is_read() -> None:
    options = parser().parse_args(["run", "sharing", "--size", "1K", "--processors", "0,2"])
    assert (options.size, options.processors, options.resume) == ([1024], (0, 2), None)
    assert parser().parse_args(["run", "--resume"]).resume == ""


def test_help_ends_well() -> None:
    script = Path(__file__).parent.parent / "vshmem-lab"
    done = subprocess.run([script, "run", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--resume" in done.stdout, done.stderr
    assert OURS.vshmem
