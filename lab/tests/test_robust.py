"""What goes wrong in mid-run is reported, the rest goes on, and nothing is left running."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes import Silent, about
from vshmem_lab import analysis, builds, leftovers, paths, store
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver
from vshmem_lab.model import Case
from vshmem_lab.runners.table import Runners
from vshmem_lab.store import Store
from vshmem_lab.topology import pair

LAB = Path(__file__).parent.parent / "vshmem-lab"
# Contenders that need nothing but the kernel and Vshmem, at work that is quick.
QUICK = ("run", "rivals", "--case", "=send and receive, uncontended", "--seconds", "0.02")
QUICK += ("--contender", "queues", "--contender", "=pipes")
DEAD = 4_000_000  # more than a process's number may be, on a system as it comes


def lab(*words: object, limit: float = 300) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    argv = [str(LAB), *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=limit)


def left_in_shared_memory() -> set[str]:
    """What labs and rivals have there."""
    found = Path("/dev/shm").iterdir()
    return {x.name for x in found if x.name.startswith(("channel-", "vshmem-lab-"))}


def measured(folder: Path, cases: Sequence[Case], repetitions: int = 2) -> analysis.Run:
    """A run of these cases by the real runners."""
    kept = Store.create(folder, about(cases, repetitions))
    with Runners(pair(), repetitions, 0.02) as runners:
        Driver(runners.find, kept, repetitions, 0.02, Silent()).run(cases)
    return analysis.load(folder)


def repetitions_of(folder: Path) -> int:
    """How many a run has kept."""
    with contextlib.suppress(Exception):
        return len({row["repetition"] for row in store.read_rows(folder)})
    return 0


def test_a_lab_that_is_killed_goes_on_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*QUICK, "--repetitions", "9", "--output", folder]
    process = subprocess.Popen(
        [str(LAB), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while repetitions_of(folder) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = (folder / "samples.csv").read_text()
    assert 2 <= repetitions_of(folder) < 9
    assert f"vshmem-lab-{process.pid}-vshmem" in left_in_shared_memory()
    done = lab("run", "--resume", folder)
    assert done.returncode == 0, done.stderr
    assert "9 repetitions" in done.stdout
    after = (folder / "samples.csv").read_text()
    assert after.startswith(before[: before.rfind("\n") + 1])
    assert not [name for name in left_in_shared_memory() if f"-{process.pid}-" in name]


def test_programs_end_with_the_lab(tmp_path: Path) -> None:
    """Also one that became another user, as root's do."""
    paths.build_programs("channel")
    user = ["-u", str(builds.ORDINARY)] if os.geteuid() == 0 else []
    argv = [str(paths.programs() / "channel"), "-t", "60", *user, "ring", "handover", "64"]
    code = f"from vshmem_lab.process import run; run({argv!r})"
    parent = subprocess.Popen([str(LAB), "--python", "-c", code], start_new_session=True)
    try:
        programs = until(lambda: [p for p in session(parent.pid) if command(p) == "channel"], 2)
    finally:
        parent.kill()
        parent.wait()
    assert until(lambda: [p for p in programs if command(p) == "channel"], 0) == []


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == leader:
                found.append(int(folder.name))
    return found


def command(pid: int) -> str:
    """What a process runs; nothing if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return "" if ") Z" in fields else fields[fields.index("(") + 1 : fields.rindex(")")]


def until(look, count: int) -> list[int]:
    """What it finds, as soon as it is so many, or after a minute."""
    deadline = time.monotonic() + 60
    while len(found := look()) != count and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_leftovers_of_the_dead_alone_are_removed() -> None:
    dead, ours = (Path(f"/dev/shm/channel-{pid}-0:0:0") for pid in (DEAD, os.getpid()))
    folder = Path(f"/dev/shm/channel-{DEAD}-aeron")
    pool = Path(f"/dev/shm/vshmem-lab-{DEAD}-vshmem")
    try:
        dead.touch()
        ours.touch()
        (folder / "publications").mkdir(parents=True)
        builds.vshmem("pool", "create", str(pool), "--size", "64M")
        leftovers.sweep()
        assert ours.exists()
        assert not dead.exists() and not folder.exists() and not pool.exists()
    finally:
        ours.unlink()


def test_a_contender_that_crashes_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch
) -> None:
    names = ("queues", "=pipes")
    (case,) = selected(Choice(("rivals",), ("=send and receive, uncontended",), names))
    paths.build_programs("channel")
    real = paths.programs() / "channel"
    bad = tmp_path / "channel-bad"
    bad.write_text("#!/bin/sh\n>/dev/shm/channel-$$-it\nkill -SEGV $$\n")
    bad.chmod(0o755)
    (tmp_path / "channel").symlink_to(real)
    monkeypatch.setattr(paths, "programs", lambda: tmp_path)
    monkeypatch.setattr(paths, "build_programs", lambda *_: None)
    monkeypatch.setattr("vshmem_lab.runners.channels.PROGRAMS", ("channel", "channel-bad"))
    crashing = dataclasses.replace(case.contenders[-1], name="bad", runner="channel-bad")
    case = dataclasses.replace(case, contenders=(crashing, *case.contenders))
    (table,) = measured(tmp_path / "run", [case]).tables
    assert [line.summary is None for line in table.lines] == [True] + [False] * 4
    assert "killed by signal 11" in table.lines[0].error
    assert not list(Path("/dev/shm").glob("channel-*-it"))


# A command `vshmem` whose machines die in the first program that they run.
COMMAND = """#!/bin/sh
state=$(dirname "$0")
echo "$*" >>"$state/asked"
case $1 in
up) echo running >"$state/vm" ;;
down) echo down >"$state/vm" ;;
ps) echo '{"clusters": [{"name": "'lab-NUMBER-2x1'", "accel": "tcg", "machines": [
    {"name": "vm0", "state": "running", "pid": NUMBER, "cores": [0]},
    {"name": "vm1", "state": "'"$(cat "$state/vm")"'", "pid": NUMBER, "cores": [1]}]}]}' ;;
run)
    if mkdir "$state/once" 2>/dev/null; then
        echo died >"$state/vm"
        echo 'vm1 died' >&2
        exit 1
    fi
    for what; do case $what in bare | queue) echo "vm0: $what 8 1000 1" ;; esac; done ;;
esac
"""


def fake_command(folder: Path, monkeypatch, text: str) -> Path:
    """The lab's machines by this script; what it was asked."""
    program = folder / "vshmem"
    program.write_text(text.replace("NUMBER", str(os.getpid())))
    program.chmod(0o755)
    monkeypatch.setenv("VSHMEM_BIN", str(program))
    return folder / "asked"


def between_machines() -> Case:
    """A case of one contender and the floor, in two machines."""
    (case,) = selected(Choice(("sharing",), ("payload",), ("queue",), ("guest-guest",), (8,)))
    return case


def test_a_machine_that_dies_is_reported_and_booted_again(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    asked = fake_command(tmp_path, monkeypatch, COMMAND)
    (table,) = measured(tmp_path / "run", [between_machines()], repetitions=3).tables
    assert [line.summary.count for line in table.lines] == [3, 3]
    words = [one.split()[0] for one in asked.read_text().splitlines() if one[:2] != "ps"]
    # A turn fails, each of its two contenders has one of its own, and three repetitions follow.
    assert words == ["up", "run", "down", "up", *["run"] * 5, "down"]
    assert "vm1 died" in capsys.readouterr().err


def test_machines_that_can_not_be_had_are_missing_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch
) -> None:
    text = "#!/bin/sh\necho 'QEMU is not there' >&2; exit 1\n"
    fake_command(tmp_path, monkeypatch, text)
    (native,) = selected(Choice(("rivals",), ("=send and receive, uncontended",), ("=pipes",)))
    away, here = measured(tmp_path / "run", [between_machines(), native]).tables
    assert all("QEMU is not there" in line.error for line in away.lines)
    assert here.lines[0].summary.count == 2


@contextlib.contextmanager
def small_disk(folder: Path, pages: int) -> Iterator[None]:
    """A file system with so much room."""
    folder.mkdir()
    size = f"size={4 * pages}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "lab-test", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk_is_reported_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 3):
        folder = disk / "run"
        full = lab(*QUICK, "--repetitions", "40", "--output", folder)
        assert full.returncode == 1
        assert "could not be written" in full.stderr and "--resume" in full.stderr
        assert "Traceback" not in full.stderr
        kept = repetitions_of(folder)
        assert 0 < kept < 40
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        done = lab("run", "--resume", folder)
        assert done.returncode == 0, done.stderr
        assert "40 repetitions" in done.stdout
