"""`vshmem-lab carry FILE`: the suite `cores` as one script with its programs, for a larger machine
that has nothing but a minimal Debian; and a run, made of the file that it leaves.

The script is `src/cores/measure.sh`. It says what each job printed, and is no judge of it: that is
read here, by the parsers of the suite's own runners, which check answers.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vshmem_lab import analysis, builds, paths, store, system
from vshmem_lab.model import Case, Contender, Failed, Turn
from vshmem_lab.process import run
from vshmem_lab.runners import cores, mpi_programs
from vshmem_lab.store import Row, Store
from vshmem_lab.suites import cores as suite

SCRIPT = cores.TEAM.with_name("measure.sh")
MARK = "@vshmem-lab cores 1"
SECONDS = 0.1
# MPICH, whose launcher is two programs, by the names that Debian has for its own.
COMPILER, LAUNCHER = "mpicc.mpich", ("mpiexec.hydra", "hydra_pmi_proxy")
PLUGINS = "ucx"  # of libucs, in a folder beside it
# What each Debian has, and must have its own of.
OF_LIBC = re.compile(r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|gcc_s)\.so)")
LINKED = re.compile(r"=> (/\S+)")
# Vshmem's library for UCX, as it is installed and as it is built.
UCX = ("libvshmem-ucx.so.1", "libvshmem_ucx.so")
NO_MPI = "MPI was not carried along: Debian's mpich is not installed where the file was made."


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


# --- and back


def is_results(file: Path) -> bool:
    """Whether a file is what the script leaves."""
    with file.open("rb") as opened:
        return opened.read(len(MARK)) == MARK.encode()


@dataclass(frozen=True)
class Printed:
    """A turn of a job, and what it printed."""

    job: int
    repetition: int
    turn: int
    time: float
    status: int
    lines: list[str]


@dataclass
class Said:
    """What the script said: facts of the machine, and what each turn printed."""

    about: dict = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    turns: list[Printed] = field(default_factory=list)
    beside: dict | None = None
    complete: bool = False


def read(file: Path) -> Said:
    """The file of results. Raises Failed if it is something else."""
    found, text = Said(), []
    for one in file.read_text(errors="replace").splitlines():
        word, _, rest = one.partition(" ")
        if word == "@about":
            found.about = json.loads(rest)
        elif word == "@fact":
            name, _, value = rest.partition(" ")
            found.facts[name] = value
        elif word == "@turn":
            job, repetition, turn, now, status = rest.split()
            text = []
            found.turns.append(
                Printed(int(job), int(repetition), int(turn), float(now), int(status), text)
            )
        elif word == "@beside":
            found.beside = _beside(*map(int, rest.split()))
        elif word == "@complete":
            found.complete = True
        else:
            text.append(one)
    if not found.about or not found.facts:
        raise Failed(f"{file.name} has no facts of a machine: it is not whole.")
    if not found.turns:
        raise Failed(f"{file.name} has no turn: let it run for longer.")
    return found


def _beside(seconds: int, busy: int, ours: int) -> dict:
    share = max(busy - ours, 0) / 100 / seconds if seconds else 0.0
    return {"share": round(share, 4), "seconds": float(seconds), "names": []}


def unpack(file: Path) -> Path:
    """A run's folder among the others, made of a file of results, or as an earlier call made it."""
    folder = paths.runs() / file.stem
    said = read(file)
    if folder.exists():
        if store.read_about(folder)["machine"]["date"] != said.facts["date"]:
            raise Failed(f"There is another run {folder.name} already. Rename {file.name}.")
        return folder
    about = _about(said)
    made = Store.create(folder, about)
    for repetition in sorted({turn.repetition for turn in said.turns}):
        for rows in _rows(said, repetition):
            made.append(rows)
    made.describe({**about, "noise": analysis.load(folder).noise()})
    return folder


def _about(said: Said) -> dict:
    facts, about = said.facts, said.about
    as_root = facts["user"] == "0"
    weighed = "nice -20" if facts["nice"] != "usual" else "usual (root measures at nice -20)"
    machine = {
        "date": facts["date"],
        "commit": about["commit"],
        "processor": facts["processor"],
        "kernel": facts["kernel"],
        "this machine": {"virtual": "virtual"}.get(facts["flags"], "bare metal, as far as it says"),
        "user": "nobody for crowds, root for the rest" if as_root else "ordinary",
        "priority": weighed,
        "load before": float(facts["load"]),
        "versions": {"Linux": facts["kernel"].split()[-1], **about["versions"]},
    }
    choice = {"suites": [suite.SUITE], "cases": [], "contenders": [], "environments": []}
    return {
        "choice": {**choice, "sizes": [], "before": ""},
        "repetitions": 1 + max(turn.repetition for turn in said.turns),
        "seconds": about["seconds"],
        "processors": [0, 0],
        "minutes": None,
        "machine": machine,
        "cases": about["cases"],
        "complete": said.complete,
        "beside": said.beside,
        "load after": float(facts.get("after", "nan")),
    }


def _rows(said: Said, repetition: int) -> Iterator[list[Row]]:
    """The samples of each case that has all of its turns in a repetition."""
    done: dict[int, list[Row]] = {}
    for printed in said.turns:
        if printed.repetition != repetition:
            continue
        job = Job(**said.about["jobs"][printed.job])
        figures, error = _figures(job, printed)
        for at, contender, size in job.turns:
            case = said.about["cases"][at]
            value = figures.get((_what(job, case), size))
            lacks = "" if value is not None else error or "The program did not print it."
            row = _row(said, case, contender, size, printed, value, lacks)
            done.setdefault(at, []).append(row)
    carried = [turn for job in said.about["jobs"] for turn in job["turns"]]
    for at, rows in sorted(done.items()):
        if len(rows) == sum(1 for turn in carried if turn[0] == at):
            yield [*rows, *_left_out(said, at, rows[-1])]


def _left_out(said: Said, at: int, last: Row) -> Iterator[Row]:
    """Of a case's turns those that were not carried along."""
    case = said.about["cases"][at]
    carried = (turn for job in said.about["jobs"] for turn in job["turns"])
    known = {(name, size) for of, name, size in carried if of == at}
    for one in case["contenders"]:
        for size in one["sizes"]:
            if (one["name"], size) not in known:
                more = {"contender": one["name"], "size": size, "value": None, "error": NO_MPI}
                yield dataclasses.replace(last, **more, placement="")


def _what(job: Job, case: dict) -> str:
    """What of a job's figures a case has; a job of MPI has those of several."""
    return job.what or case["case"].rpartition(" ")[2]


def _figures(job: Job, printed: Printed) -> tuple[dict, str]:
    """What a job has measured, or why it has not."""
    text = "\n".join(printed.lines)
    if printed.status != 0:
        return {}, f"It failed with status {printed.status}: {text.strip() or 'it said nothing'}"
    try:
        return job.work.figures(text), ""
    except (Failed, ValueError, IndexError) as failure:
        return {}, str(failure)


def _row(
    said: Said,
    case: dict,
    contender: str,
    size: int,
    printed: Printed,
    value: float | None,
    error: str,
) -> Row:
    return Row(
        **{name: case[name] for name in ("suite", "case", "environment", "unit", "way")},
        **dict.fromkeys(("p50", "p99", "p999")),
        contender=contender,
        size=size,
        repetition=printed.repetition,
        turn=printed.turn,
        value=value,
        placement=f"{said.facts['processors']} processors" if value is not None else "",
        accelerator="",
        steady=True,
        time=round(printed.time, 3),
        error=error,
    )
