"""A run, made of the file of results that the script of `vshmem-lab carry` leaves.

The script says what each job printed, and is no judge of it: that is read here, by the parsers of
the suite's own runners, which check answers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vshmem_lab import analysis, paths, store
from vshmem_lab.carry import Job
from vshmem_lab.model import Failed
from vshmem_lab.store import Row, Store
from vshmem_lab.suites import cores as suite

MARK = "@vshmem-lab cores 1"
NO_MPI = "MPI was not carried along: Debian's mpich is not installed where the file was made."


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
