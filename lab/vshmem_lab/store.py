"""A run's folder: `samples.csv`, a row for each sample, and `run.json`, what it was measured on."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vshmem_lab.model import Case, Failed, Reading, Turn

VERSION = 1
Key = tuple[str, str, str]  # suite, case and environment
SAMPLES, ABOUT = "samples.csv", "run.json"


@dataclass(frozen=True)
class Row:
    """A sample: tidy, so that it can be understood without the others."""

    suite: str
    case: str
    environment: str
    contender: str
    size: int  # bytes; 0: there is none
    repetition: int
    turn: int  # its place in the repetition
    value: float | None
    unit: str
    way: str  # one way, or there and back
    p50: float | None  # of single operations
    p99: float | None
    p999: float | None
    placement: str  # of the processes
    accelerator: str  # of virtual machines: kvm, or tcg, which emulates
    steady: bool
    time: float  # seconds since the epoch
    error: str  # why there is no value
    profile: str = ""  # where processors were meanwhile

    @classmethod
    def of(
        cls,
        turn: Turn,
        reading: Reading,
        repetition: int,
        position: int,
        steady: bool,
        now: float,
    ) -> Row:
        """The row of a turn."""
        case = turn.case
        return cls(
            suite=case.suite,
            case=case.name,
            environment=case.environment,
            contender=turn.contender.name,
            size=turn.size,
            repetition=repetition,
            turn=position,
            value=reading.value,
            unit=case.unit,
            way=case.way,
            p50=reading.p50,
            p99=reading.p99,
            p999=reading.p999,
            placement=reading.placement,
            accelerator=reading.accelerator,
            steady=steady,
            time=round(now, 3),
            error=reading.error,
            profile=reading.profile,
        )


FIELDS = [field.name for field in dataclasses.fields(Row)]


class Store:
    """The folder of a run that is under way. A repetition is in it as a whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._samples = folder / SAMPLES
        self._done: dict[Key, list[bool]] = {}
        self._took: dict[Key, float] = {}

    @classmethod
    def create(cls, folder: Path, about: dict) -> Store:
        """A new run."""
        store = cls(folder)
        try:
            folder.mkdir(parents=True)
            store.describe(about)
            store._write("w", ",".join(FIELDS) + "\n")
        except FileExistsError:
            raise Failed(
                f"{folder} exists. Choose another --output, or go on with --resume."
            ) from None
        except OSError as error:
            raise Failed(f"{folder} could not be written: {error.strerror}.") from None
        return store

    @classmethod
    def resume(cls, folder: Path) -> Store:
        """A run that was interrupted; what its last, unfinished repetition left is dropped."""
        store = cls(folder)
        rows = read_rows(folder)
        found: dict[Key, dict[int, bool]] = {}
        for row in rows:
            found.setdefault(key_of(row), {})[int(row["repetition"])] = row["steady"] == "True"
        store._took = {key: min(took) for key, took in durations(rows).items()}
        store._done = {case: list(steady.values()) for case, steady in found.items()}
        return store

    def describe(self, about: dict) -> None:
        """Writes what the run was measured on."""
        text = json.dumps({"version": VERSION, **about}, indent=2, ensure_ascii=False)
        partial = self.folder / (ABOUT + ".new")
        try:
            partial.write_text(text + "\n")
            partial.replace(self.folder / ABOUT)
        except OSError as error:
            raise Failed(f"{partial} could not be written: {error.strerror}.") from None

    def repetitions(self, case: Case) -> tuple[int, int]:
        """How many steady repetitions it has, and how many altogether."""
        steady = self._done.get((case.suite, case.name, case.environment), [])
        return sum(steady), len(steady)

    def took(self, case: Case) -> float:
        """The seconds that its quickest repetition took when this run was measured before, or 0."""
        return self._took.get((case.suite, case.name, case.environment), 0)

    def append(self, rows: Sequence[Row]) -> None:
        """Keeps a repetition."""
        text = Lines()
        writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
        writer.writerows(dataclasses.asdict(row) for row in rows)
        before = self._samples.stat().st_size
        try:
            self._write("a", "".join(text.lines))
        except OSError as error:
            with self._samples.open("r+") as file:
                file.truncate(before)
            raise Failed(
                f"{self._samples} could not be written: {error.strerror}. What was measured before"
                " is kept; make room and go on with --resume."
            ) from None
        key = (rows[0].suite, rows[0].case, rows[0].environment)
        self._done.setdefault(key, []).append(rows[0].steady)

    def _write(self, mode: str, text: str) -> None:
        with self._samples.open(mode, newline="") as file:
            file.write(text)


def key_of(row: Mapping[str, str]) -> Key:
    """The case of a sample."""
    return row["suite"], row["case"], row["environment"]


def durations(rows: Sequence[Mapping[str, str]]) -> dict[Key, list[float]]:
    """The seconds that each case's repetitions took, but the first of a run, whose begin is not
    known.
    """
    found: dict[Key, list[float]] = {}
    before = None
    for row in rows:
        now = float(row["time"])
        if before is not None and now > before:
            found.setdefault(key_of(row), []).append(now - before)
        before = now
    return found


class Lines:
    """What csv writes into."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        """One line."""
        self.lines.append(text)


def read_about(folder: Path) -> dict:
    """What a run was measured on."""
    try:
        about = json.loads((folder / ABOUT).read_text())
    except FileNotFoundError:
        raise Failed(f"{folder} has no {ABOUT}: it is no run of the lab.") from None
    except json.JSONDecodeError as error:
        raise Failed(f"{folder / ABOUT} is damaged: {error}.") from None
    if about.get("version") != VERSION:
        raise Failed(
            f"{folder} has another version ({about.get('version')}) than this lab ({VERSION})."
        )
    return about


def read_rows(folder: Path) -> list[dict[str, str]]:
    """The samples as text, without a last line that is not whole; the file is cut there."""
    path = folder / SAMPLES
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise Failed(f"{folder} has no {SAMPLES}: it is no run of the lab.") from None
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return list(csv.DictReader(whole.splitlines()))
