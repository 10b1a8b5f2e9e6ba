"""`vshmem-lab carry FILE`: the suite `cores` as one script with its programs, for a larger machine
that has nothing but a minimal Debian. The script is `src/cores/measure.sh`; `carried.py` reads the
file that it leaves.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vshmem_lab import analysis, builds, paths, system
from vshmem_lab.model import Case, Contender, Failed, Turn
from vshmem_lab.process import run
from vshmem_lab.runners import cores, mpi_programs
from vshmem_lab.suites import cores as suite

SCRIPT = cores.TEAM.with_name("measure.sh")
SECONDS = 0.1
# MPICH, whose launcher is two programs, by the names that Debian has for its own.
COMPILER, LAUNCHER = "mpicc.mpich", ("mpiexec.hydra", "hydra_pmi_proxy")
PLUGINS = "ucx"  # of libucs, in a folder beside it
# What each Debian has, and must have its own of.
OF_LIBC = re.compile(r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|gcc_s)\.so)")
LINKED = re.compile(r"=> (/\S+)")
# Vshmem's library for UCX, as it is installed and as it is built.
UCX = ("libvshmem-ucx.so.1", "libvshmem_ucx.so")


@dataclass
class Job:
    """A command, and the turns that it measures: case, contender and size."""

    program: str
    model: str
    count: int
    what: str
    turns: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def work(self) -> cores.Work:
        """Its program."""
        return cores.work(self.program, self.model, self.count, self.what)


def jobs(cases: Sequence[Case] = suite.CASES) -> list[Job]:
    """The commands that measure these cases: one for a contender's sizes, of MPI one for all."""
    found: dict[tuple, Job] = {}
    for at, case in enumerate(cases):
        for one in case.contenders:
            program, model, count = cores.named(one.runner)
            what = "" if program == suite.JOB else one.words[0]
            job = found.setdefault((program, model, count, what), Job(program, model, count, what))
            job.turns += [(at, one.name, size) for size in case.sizes_of(one)]
    return list(found.values())


def line(number: int, job: Job, cases: Sequence[Case], seconds: float) -> str:
    """A job as the script reads it."""
    made = job.work
    words = made.argv(_turns(job, cases), seconds)
    return " ".join([str(number), str(made.count), made.way, made.place, *words])


def _turns(job: Job, cases: Sequence[Case]) -> list[Turn]:
    one = Contender(job.model, "", (job.what,))
    return [Turn(cases[at], one, size) for at, _, size in job.turns]


def pack(file: Path, cases: Sequence[Case] = suite.CASES, seconds: float = SECONDS) -> Path:
    """Writes the script with its programs; its path."""
    has_mpi = all(map(shutil.which, (COMPILER, *LAUNCHER)))
    able = [job for job in jobs(cases) if has_mpi or job.work.way != "ranks"]
    about = {
        "commit": system.commit(),
        "seconds": seconds,
        "versions": _versions(),
        "cases": analysis.describe(cases),
        "jobs": [vars(job) for job in able],
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, path in _files(able, cases).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / name)
        (root / "about").write_text(json.dumps(about, ensure_ascii=False))
        lines = (line(number, job, cases, seconds) for number, job in enumerate(able))
        (root / "jobs").write_text("\n".join(lines) + "\n")
        _write(file, root)
    return file


def _versions() -> dict[str, str]:
    found = {"C library": " ".join(platform.libc_ver()), "Vshmem": builds.current().version()}
    if shutil.which(LAUNCHER[0]):
        said = run([LAUNCHER[0], "--version"]).splitlines()
        (version,) = [one.split(":")[1].strip() for one in said if one.strip()[:8] == "Version:"]
        found["MPI"] = f"MPICH {version}"
    return found


def _write(file: Path, root: Path) -> None:
    """The script, and after its last line the files below a folder."""
    script = SCRIPT.read_text().replace("@ARCHITECTURE@", platform.machine())
    try:
        with file.open("wb") as out:
            out.write(script.encode())
            with tarfile.open(fileobj=out, mode="w:gz") as archive:
                for path in sorted(root.iterdir()):
                    archive.add(path, path.name)
        file.chmod(0o755)
    except OSError as error:
        raise Failed(f"{file} could not be written: {error.strerror}.") from None


def _files(able: Sequence[Job], cases: Sequence[Case]) -> dict[str, Path]:
    """What goes along, by where it is there."""
    folder = paths.target() / "lab" / "carried"
    works = {job.work.argv(_turns(job, cases), SECONDS)[0]: job.work for job in able}
    goals = {work.goal for name, work in works.items() if name != cores.MEASURE}
    for goal in sorted(goals):
        paths.build_programs(goal, folder, (f"MPICC={COMPILER}",))
    beside = map(paths.library().with_name, UCX)
    found = {
        "bin/team.sh": cores.TEAM,
        "bin/vshmem": paths.command(),
        "lib/libvshmem.so": paths.library(),
        **{f"lib/{UCX[0]}": path for path in beside if path.exists()},
    }
    if cores.MEASURE in works:
        mpi_programs.compile_with(COMPILER, folder / cores.MEASURE)
        found |= {f"bin/{name}": Path(shutil.which(name)) for name in LAUNCHER}
    found |= {f"bin/{name}": folder / name for name in works}
    return found | _libraries(found.values())


def _libraries(programs: Sequence[Path]) -> dict[str, Path]:
    """The libraries of programs that a minimal Debian may lack, with the plugins of UCX."""
    found: dict[str, Path] = {}
    todo = [path for path in programs if path.suffix != ".sh"]
    while todo:
        said = subprocess.run(["ldd", str(todo.pop())], capture_output=True, text=True).stdout
        for path in map(Path, LINKED.findall(said)):
            name = f"lib/{path.name}"
            if OF_LIBC.search(str(path)) or name in found or path == paths.library():
                continue
            found[name] = path
            plugins = path.parent / PLUGINS if path.name.startswith("libucs.") else None
            for plugin in sorted(plugins.glob("*.so.0")) if plugins else ():
                found[f"lib/{PLUGINS}/{plugin.name}"] = plugin
                todo.append(plugin)
    return found
