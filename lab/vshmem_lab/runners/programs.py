"""Turns of the suite `programs`: a script starts a real program, and its clients."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab import paths, priority
from vshmem_lab.builds import ORDINARY, check_interposed
from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.process import run

SCRIPTS = paths.LAB / "src" / "programs"
LIMIT = 120
# Programs run so many times as long as other turns, and at least a second: they take time to start.
LONGER = 15
# By the script's name: what must be there, and the package that has it.
NEEDS = {
    "stress": ("stress-ng", "stress-ng"),
    "pgbench": ("pgbench", "postgresql postgresql-contrib"),
    "apache": ("ab", "apache2-bin apache2-utils"),
    "uwsgi": ("uwsgi", "uwsgi-core"),
    "fakeroot": ("fakeroot-sysv", "fakeroot"),
    "afl": ("afl-fuzz", "afl++"),
    "mpich": ("NPmpich2", "netpipe-mpich2"),
}
# Programs of ours, by the goals of the Makefile that make them.
OURS = {"berkeleydb": "berkeleydb", "afl": "fuzzed"}


class Files:
    """`with Files() as f`: f.path is a folder of the user who measures, with all that is needed."""

    def __enter__(self) -> Files:
        self._folder = tempfile.TemporaryDirectory(prefix=f"lab-{os.getpid()}-", dir="/dev/shm")
        self.path = Path(self._folder.name)
        self.path.chmod(0o755)
        for file in SCRIPTS.iterdir():
            shutil.copy(file, self.path)
        if os.geteuid() == 0:
            os.chown(self.path, ORDINARY, ORDINARY)
        return self

    def __exit__(self, *_exc) -> None:
        self._folder.cleanup()

    def add(self, file: Path, name: str) -> Path:
        """Copies a file to where the user who measures can reach it."""
        copy = self.path / name
        if not copy.exists():
            shutil.copy(file, copy)
        return copy


class Programs:
    """One run of a program a turn, by an ordinary user."""

    most = 1

    def __init__(self, files: Files, extra: dict[str, str]) -> None:
        self._files, self._user = files, []
        if os.geteuid() == 0:
            user = [f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]
            self._user = ["setpriv", *user]
        self._extra = {"HOME": str(files.path), "LANG": "C.UTF-8"}
        if extra:
            library = files.add(Path(extra["LD_PRELOAD"]), f"{Path(extra['VSHMEM_POOL']).name}.so")
            check_interposed(extra | {"LD_PRELOAD": str(library)}, self._user)
            # Not for the script itself, its clients and its tools.
            self._extra |= {**extra, "LD_PRELOAD": "", "PRELOAD": str(library)}

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The reading of the turn: how long an operation took, on average."""
        (turn,) = turns
        what, *words = turn.contender.words
        program, package = NEEDS.get(what, ("sh", ""))
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed ({package}).")
        if what in OURS:
            paths.build_programs(OURS[what])
            self._files.add(paths.programs() / OURS[what], OURS[what])
        script = [str(self._files.path / "program.sh"), what, str(math.ceil(LONGER * seconds))]
        argv = [*self._user, *script, str(self._files.path), *words]
        return [reading(run(priority.heavy(argv), self._extra, limit=LIMIT), what)]


def reading(said: str, what: str) -> Reading:
    """What the script printed of a program."""
    words = said.split()
    if len(words) != 2 or words[0] != what:
        raise Failed(f"program.sh {what} did not print what was asked for: {said.strip()}")
    return Reading(float(words[1]))
