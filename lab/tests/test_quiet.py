"""What disturbs a run is seen, and a run that was disturbed is not kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import Silent, Store, about, all_fake, case
from vshmem_lab import paths, quiet, system
from vshmem_lab.driver import Driver
from vshmem_lab.model import Failed
from vshmem_lab.report import docs
from vshmem_lab.store import read_about

# Kept before a run had to be quiet: their reports say what the load was, and what ran beside some.
EARLIER = {
    *("2026-11-25-dwarfs", "2026-11-25-hypervisors", "2026-11-25-mpi", "2026-11-25-rivals"),
    *("2026-11-25-sharing", "2026-11-26-algebra", "2026-11-26-mpi-granularity"),
    *("2026-11-26-speed-rivals", "2026-11-26-speed-sharing", "2026-11-26-vsuite"),
    *("2026-11-26-xen", "2026-11-27-bigdata", "2026-11-27-speed", "2026-11-27-speed-forks"),
    *("2026-11-27-speed-payloads", "2026-11-27-speed-programs", "2026-11-27-speed-rivals"),
    "2026-11-29-demo",
}
WORK = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"
SHORT = "import subprocess\nwhile True: subprocess.run(['{}', '-c', 'sum(range(3000000))'])"
NAME = "a-stranger"
ENOUGH, PATIENCE = 0.2, 90.0
IDLE = "import time\ntime.sleep(60)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that may be kept."""
    store = Store.create(tmp_path / "run", about([case()]))
    Driver(all_fake(), store, 2, 0.1, Silent()).run([case()])
    return tmp_path / "run"


def altered(folder: Path, machine: dict | None = None, **rest: object) -> Path:
    """A run whose metadata say something else."""
    told = json.loads((folder / "run.json").read_text())
    told["machine"] |= machine or {}
    (folder / "run.json").write_text(json.dumps(told | rest))
    return folder


def test_a_quiet_run_is_kept(folder: Path, tmp_path: Path) -> None:
    kept = docs.keep(folder, "once", tmp_path)
    assert "others took 1.0% of a processor: sshd" in (kept / "report.txt").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": {"commit": "0123456789+changes"}}, "which is no commit alone"),
        ({"machine": {"load before": 0.5}}, "the load before it was 0.5"),
        ({"beside": None}, "was not watched"),
        (
            {"beside": {"share": 0.83, "seconds": 60, "names": ["rustc", "ld"]}},
            r"took 83% of a processor beside it \(rustc, ld\)",
        ),
        ({"complete": False}, "it is not complete"),
    ],
)
def test_others_are_refused_with_a_reason(
    change: dict, said: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(Failed, match=said):
        docs.keep(altered(folder, **change), "once", tmp_path)
    assert not (tmp_path / docs.RESULTS / "once").exists()


def test_every_kept_run_was_quiet_or_is_an_earlier_one() -> None:
    results = [path.parent for path in (paths.ROOT / docs.RESULTS).glob("*/run.json")]
    refused = {path.name for path in results if quiet.refusals(read_about(path))}
    assert refused <= EARLIER
    assert {path.name for path in results} >= EARLIER


def program_of(folder: Path) -> Path:
    """A Python of another name, by which it is told from what else works on this machine."""
    named = folder / NAME
    if not named.exists():
        shutil.copy(Path(sys.executable).resolve(), named)
    return named


def watched(folder: Path, program: str, *, ours: bool, sought: bool, seconds: float = 2) -> dict:
    """What is told of a while in which a program runs, and what of it is that program's."""
    variables = {k: v for k, v in os.environ.items() if k != quiet.VARIABLE}
    with quiet.Watch() as watch:
        more = {quiet.VARIABLE: os.environ[quiet.VARIABLE]} if ours else {}
        argv = [str(program_of(folder)), "-c", program]
        process = subprocess.Popen(argv, env=variables | more, start_new_session=True)
        began = time.monotonic()
        while True:
            time.sleep(seconds / 2)
            watch.look()
            mine, passed = watch.taken(NAME), time.monotonic() - began
            # On a busy machine the program gets little: it is given time where it is to be seen.
            if mine > ENOUGH or passed > (PATIENCE if sought else seconds):
                break
        os.killpg(process.pid, 9)
        process.wait()
    return {"mine": mine, **watch.told()}


def test_what_works_beside_a_run_is_seen(tmp_path: Path) -> None:
    found = watched(tmp_path, WORK, ours=False, sought=True)
    assert found["mine"] > ENOUGH and found["share"] > quiet.SHARE


def test_programs_that_end_between_two_looks_are_seen(tmp_path: Path) -> None:
    found = watched(tmp_path, SHORT.format(sys.executable), ours=False, sought=True)
    assert found["mine"] > ENOUGH


def test_what_the_run_has_started_is_not_beside_it(tmp_path: Path) -> None:
    for program, ours in ((WORK, True), (IDLE, False)):
        assert watched(tmp_path, program, ours=ours, sought=False)["mine"] < ENOUGH


def test_both_parts_of_an_interrupted_run_count() -> None:
    earlier = {"share": 0.5, "seconds": 100000.0, "names": ["rustc"]}
    with quiet.Watch(earlier) as watch:
        pass
    assert watch.told()["share"] == pytest.approx(0.5, abs=0.01)
    assert "rustc" in watch.told()["names"]
    with quiet.Watch(None) as watch:
        pass
    assert watch.told() is None


def test_a_run_tells_what_was_beside_it(tmp_path: Path) -> None:
    words = ["run", "rivals", "--case", "=send and receive, uncontended", "--contender", "=pipes"]
    argv = [str(paths.LAB / "vshmem-lab"), *words, "--miniature", "--output", str(tmp_path / "a")]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    told = read_about(tmp_path / "a")
    assert told["complete"] and told["beside"]["seconds"] > 0


def test_a_tree_with_changes_is_no_commit(tmp_path: Path, monkeypatch) -> None:
    def git(*words: str) -> None:
        argv = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(tmp_path), *words]
        subprocess.run(argv, check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    monkeypatch.setattr(system, "ROOT", tmp_path)
    assert "+" not in system.commit()
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "kept").write_text("")  # of the suite before
    assert "+" not in system.commit()
    (tmp_path / "b").write_text("")  # not tracked
    assert system.commit().endswith("+changes")
