"""The suite `cores`, here and carried to a machine that has nothing but a minimal Debian."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from vshmem_lab import analysis, builds, carried, carry, cli, paths, quiet
from vshmem_lab.choice import Choice, selected
from vshmem_lab.model import Case, Failed, Turn
from vshmem_lab.runners import cores
from vshmem_lab.suites import cores as suite

HAS_MPI = shutil.which("mpicc") is not None
HAS_MPICH = all(map(shutil.which, (carry.COMPILER, *carry.LAUNCHER)))


def some(*names: str, count: int = 4) -> list[Case]:
    """Cases of these names, by so many processes."""
    found = selected(Choice((suite.SUITE,), tuple(f"={name}" for name in names)))
    return [one for one in found if one.environment == f"{count} processes"]


def test_all_kinds_are_there_for_each_number_of_processes() -> None:
    kinds = {
        count: {one.name for one in suite.CASES if f"{count} p" in one.environment}
        for count in (4, 8, 16)
    }
    assert kinds[4] == kinds[8] == kinds[16]
    assert {"mutex", "1,000 times barrier", "pi by Simpson's rule", "MPI's allreduce"} < kinds[4]


def test_runners_are_named_so_that_their_names_say_what_they_are() -> None:
    for program, model, count in cores.programs():
        assert cores.named(suite.runner(program, model, count)) == (program, model, count)
        assert count in suite.COUNTS
        made = cores.work(program, model, count, "mutex")
        assert (made.place == "pool") == ("Vshmem" in model), model


def test_a_key_and_a_user_are_put_into_a_command() -> None:
    argv = ["it", cores.USER, "-k", cores.KEY]
    assert cores.expanded(argv, ["-u", "7"], 255) == ["it", "-u", "7", "-k", "0xff"]
    assert cores.expanded(argv, [], 1) == ["it", "-k", "0x1"]


@pytest.mark.parametrize(
    "name", ["mutex", "token ring", "1,000 times reduction", "pi by Simpson's rule"]
)
def test_processes_measure(name: str) -> None:
    (case,) = some(name)
    with builds.Pool(f"lab-{os.getpid()}-cores", builds.current()) as pool:
        runners = cores.runners(pool.environment)
        for one in case.contenders:
            if one.name == suite.MPI and not HAS_MPI:
                continue
            turns = [Turn(case, one, size) for size in case.sizes[:1]]
            found = runners[one.runner]().measure(turns, 0.02)
            assert all(reading.value > 0 for reading in found), one.name
            assert found[0].placement.endswith("processors")


@pytest.mark.skipif(not HAS_MPI, reason="mpicc is not installed")
def test_a_job_of_mpi_measures_for_several_cases() -> None:
    barrier, bcast = some("MPI's barrier", "MPI's bcast")
    with builds.Pool(f"lab-{os.getpid()}-cores", builds.current()) as pool:
        runners = cores.runners(pool.environment)
        for one, other in zip(barrier.contenders, bcast.contenders, strict=True):
            runner = runners[one.runner]()
            (first,) = runner.measure([Turn(barrier, one, 0)], 0.02)
            said = runner.measure([Turn(bcast, other, size) for size in bcast.sizes], 0.02)
            assert first.value > 0 and all(reading.value > 0 for reading in said)


def team(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """team.sh, with these words."""
    argv = [str(cores.TEAM), *words]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **variables})


def test_each_process_is_on_a_core_and_one_that_fails_is_seen() -> None:
    listed = team("cpus").stdout.strip().split(",")
    assert {int(cpu) for cpu in listed} == os.sched_getaffinity(0)
    show = "sh", "-c", "taskset -cp $$ | sed 's/.*: //'"
    found = team("3", "processes", "kernel", *show).stdout.split()
    assert sorted(found) == sorted(listed[i % len(listed)] for i in range(3))
    assert team("2", "processes", "kernel", "sh", "-c", "exit 3").returncode == 3
    assert team("2", "nowhere", "kernel", "true").returncode == 2


NAMES = ("mutex", "1,000 times barrier", "MPI's barrier", "MPI's bcast")


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    """A script with a few cases."""
    # A barrier of more ranks than processors takes its time.
    cases = [
        dataclasses.replace(one, contenders=one.contenders[:3]) if one.name == NAMES[1] else one
        for one in some(*NAMES)
    ]
    return carry.pack(tmp_path_factory.mktemp("carry") / "it.sh", cases, 0.02)


def run_to_its_end(argv: list[str]) -> None:
    """Runs the script once, to its end."""
    done = subprocess.run([*argv, "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_script_measures_by_itself_and_its_file_is_a_run(
    script: Path, tmp_path: Path, monkeypatch
) -> None:
    file = tmp_path / "results.txt"
    run_to_its_end(["sh", str(script), "4.5", str(file)])
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    folder = cli.folder_of(str(file))
    assert folder == cli.folder_of(str(file)) == tmp_path / "runs" / "results"
    run = analysis.load(folder)
    assert [table.case for table in run.tables] == list(NAMES)
    for table in run.tables:
        for line in table.lines:
            if HAS_MPICH or "MPI" not in line.contender:
                assert line.summary and line.summary.median > 0, line.error
    assert run.about["complete"] and run.about["beside"]["seconds"] > 0
    machine = run.about["machine"]
    assert "usable" in machine["processor"] and machine["versions"]["Vshmem"]
    assert not list(Path("/dev/shm").glob("vshmem-lab-*-cores"))
    # Its own programs are no strangers: they take a processor or two, and are not told.
    assert not [why for why in quiet.refusals(run.about) if "not watched" in why]


def test_a_script_that_is_interrupted_keeps_what_is_done(
    script: Path, tmp_path: Path, monkeypatch
) -> None:
    file = tmp_path / "cut.txt"
    argv = ["sh", str(script), "4.5", str(file)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert "1 repetitions" in process.stderr.readline()
        process.terminate()
        process.stderr.read()
    assert process.returncode == 130
    assert not list(Path("/dev/shm").glob(f"vshmem-lab-{process.pid}-*"))
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    run = analysis.load(carried.unpack(file))
    assert [table.case for table in run.tables] == list(NAMES)
    assert any("not complete" in why for why in quiet.refusals(run.about))


REQUIRED = ("dpkg-query", "-W", "-f", "${Package} ${Priority} ${db:Status-Status}\\n")


@pytest.fixture(scope="module")
def debian(tmp_path_factory) -> Path:
    """A system of what Debian calls required, and no more."""
    if os.geteuid() != 0 or shutil.which("dpkg-query") is None:
        pytest.skip("only root has other roots, and of Debian's packages")
    listed = subprocess.run(REQUIRED, capture_output=True, text=True).stdout.splitlines()
    required = [one.split()[0] for one in listed if one.split()[1:] == ["required", "installed"]]
    required.append("mawk")  # base-files wants an awk
    # And the libraries that these need.
    argv = ["apt-cache", "depends", "--recurse", "--installed", "--important", "--no-suggests"]
    argv += ["--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances", "--no-recommends"]
    said = subprocess.run([*argv, *required], capture_output=True, text=True).stdout
    names = [one for one in said.splitlines() if one and one[0] not in " <|"]
    listed = subprocess.run(["dpkg", "-L", *names], capture_output=True, text=True).stdout
    files = [
        name for name in listed.splitlines() if Path(name).is_file() or Path(name).is_symlink()
    ]
    root = tmp_path_factory.mktemp("debian")
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path(f"/{link}").is_symlink():
            (root / link).symlink_to(f"usr/{link}")
    files = [name for name in files if not name.startswith(("/usr/share/doc", "/usr/share/locale"))]
    copy = f"tar -C / -cf - --no-recursion --ignore-failed-read -T - | tar -C {root} -xf -"
    asked = "\n".join(name.lstrip("/") for name in dict.fromkeys(map(_real, files)))
    subprocess.run(["sh", "-c", copy], input=asked, text=True, capture_output=True)
    (root / "usr" / "bin" / "awk").symlink_to("mawk")  # of the alternatives
    subprocess.run(["ldconfig", "-r", str(root)], capture_output=True)
    for name in ("proc", "sys", "dev", "tmp", "etc", "run"):
        (root / name).mkdir(exist_ok=True)
    root.chmod(0o755)
    (root / "tmp").chmod(0o1777)
    return root


def _real(name: str) -> str:
    """A file by its folder's real name: /lib is /usr/lib."""
    path = Path(name)
    return str(path.parent.resolve() / path.name)


MOUNTS = """set -e
root=$1
shift
for one in proc sys dev; do mount --rbind /$one "$root/$one"; done
mkdir -p "$root/bin" 2>/dev/null || true
exec chroot "$root" /bin/sh -c 'cd /tmp && "$@"' sh "$@"
"""


def test_a_script_needs_no_more_than_a_minimal_debian(
    script: Path, debian: Path, tmp_path: Path, monkeypatch
) -> None:
    shutil.copy(script, debian / "tmp" / "it.sh")
    for name in ("python3", "cc", "mpiexec", "perl5"):
        assert not (debian / "usr" / "bin" / name).exists()
    inside = ["unshare", "--mount", "sh", "-c", MOUNTS, "sh", str(debian)]
    run_to_its_end([*inside, "sh", "/tmp/it.sh", "4.5", "/tmp/results.txt"])
    monkeypatch.setattr(paths, "runs", lambda: tmp_path)
    run = analysis.load(carried.unpack(debian / "tmp" / "results.txt"))
    failed = {line.error for table in run.tables for line in table.lines if line.summary is None}
    assert failed <= ({carried.NO_MPI} if not HAS_MPICH else set())


FACTS = "date processor processors kernel flags user nice load".split()


def results(script_cases: list[Case], turns: str) -> str:
    """A file of results whose turns are these."""
    able = carry.jobs(script_cases)
    about = {"commit": "0123456789", "seconds": 0.1, "versions": {}}
    about |= {"cases": analysis.describe(script_cases), "jobs": [vars(job) for job in able]}
    facts = dict.fromkeys(FACTS, "4") | {"load": "0.1", "kernel": "Linux 6"}
    lines = [carried.MARK, f"@about {json.dumps(about)}"]
    lines += [f"@fact {name} {value}" for name, value in facts.items()]
    return "\n".join([*lines, turns, "@beside 10 150 100", "@fact after 0.2", "@complete", ""])


def test_a_repetition_that_was_cut_off_does_not_count(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    turn = "@turn {} {} {} 10{}.5 0\n{} ns\n1.1 x"
    turns = [turn.format(job, r, r, r, 100 + 10 * job) for r in (0, 1) for job in (0, 1)]
    file = tmp_path / "cores-1.txt"
    file.write_text(results(some("mutex"), "\n".join(turns[:3])))
    run = analysis.load(carried.unpack(file))
    ((kernel, ours),) = [table.lines for table in run.tables]
    assert (kernel.summary.count, ours.summary.count) == (1, 1)
    assert (kernel.summary.median, ours.summary.median) == (100, 110)
    assert run.about["beside"] == {"share": 0.05, "seconds": 10.0, "names": []}
    assert quiet.refusals(run.about) == []


def test_a_wrong_answer_and_a_failure_are_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    said = "@turn 0 0 0 1.5 0\nreduction 1000 100 11\n@turn 1 0 1 2.5 124\nhung\n"
    said += "\n".join(f"@turn {job} 0 {job} 3.5 0\nreduction 1000 200 10" for job in (2, 3, 4))
    file = tmp_path / "cores-2.txt"
    file.write_text(results(some("1,000 times reduction"), said))
    (table,) = analysis.load(carried.unpack(file)).tables
    assert "reduction of 1000 is wrong: 11 instead of 10" in table.lines[0].error
    assert "failed with status 124: hung" in table.lines[1].error
    assert [line.summary.median for line in table.lines[2:]] == [200] * 3


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text(f"{carried.MARK}\n")
    assert carried.is_results(empty)
    with pytest.raises(Failed, match="no facts"):
        carried.read(empty)
    empty.write_text(results(some("mutex"), ""))
    with pytest.raises(Failed, match="no turn"):
        carried.read(empty)
