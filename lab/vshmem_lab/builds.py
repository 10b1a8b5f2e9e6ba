"""Builds of Vshmem, and the pools that their programs use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vshmem_lab import paths
from vshmem_lab.model import Failed
from vshmem_lab.process import run

LIMIT_SECONDS = 120
# Limits of the pool, as NAME=VALUE, where the usual ones are too low.
LIMITS = ("semmni=100000", "shmmni=32768")
# The user as whom root measures: nobody.
ORDINARY = 65534


@dataclass(frozen=True)
class Build:
    """A build of Vshmem: its interposer and its command, which understand the same pools."""

    library: Path
    command: Path

    def version(self) -> str:
        """What the command says of itself."""
        return run([str(self.command), "--version"]).strip()


def current() -> Build:
    """What is measured."""
    return Build(paths.library(), paths.command())


def earlier(folder: Path) -> Build:
    """An earlier build, to compare with: a folder such as target/release of another checkout."""
    build = Build(folder.resolve() / "libvshmem.so", folder.resolve() / "vshmem")
    for path in (build.library, build.command):
        if not path.exists():
            raise Failed(f"{path} does not exist. Build the earlier version first (make build).")
    return build


def vshmem(
    *arguments: str,
    limit: int = LIMIT_SECONDS,
    build: Build | None = None,
    before: Sequence[str] = (),
) -> str:
    """Runs `vshmem ARGUMENTS`, of another build if one is given, behind other words; its output."""
    done = subprocess.run(
        [*before, str(build.command if build else paths.command()), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=limit,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Failed(f"vshmem {' '.join(arguments)} failed with status {done.returncode}: {said}")
    return done.stdout


@dataclass
class Pool:
    """A local pool for the time of a run, with limits that 100,000 IPC objects fit in."""

    name: str
    build: Build

    @property
    def path(self) -> Path:
        """Its file: where an ordinary user can reach it, too."""
        return Path(f"/dev/shm/vshmem-{self.name}")

    def __enter__(self) -> Pool:
        limits = [word for limit in LIMITS for word in ("--limit", limit)]
        vshmem("pool", "create", str(self.path), "--size", "2G", *limits, build=self.build)
        try:
            if os.geteuid() == 0:
                os.chown(self.path, ORDINARY, ORDINARY)
            check_interposed(self.environment())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc) -> None:
        vshmem("pool", "rm", "--force", str(self.path), build=self.build)

    def environment(self) -> dict[str, str]:
        """What makes a program use this pool for every key."""
        return {
            "LD_PRELOAD": str(self.build.library),
            "VSHMEM_POOL": str(self.path),
            "VSHMEM_KEYS": "all",
        }


def check_interposed(environment: dict[str, str], before: Sequence[str] = ()) -> None:
    """Makes sure that calls don't reach the kernel, behind words that make another user's of them.

    Vshmem's ids have bit 30 set.
    """
    probe = (
        "import ctypes; c = ctypes.CDLL(None); i = c.semget(0, 1, 0o1600); "
        "c.semctl(i, 0, 0, 0); print(i)"
    )
    python = sys.executable if not before else "/usr/bin/python3"
    said = run([*before, python, "-c", probe], environment)
    if not (int(said) > 0 and int(said) >> 30 & 1):
        raise Failed(f"The interposer did not take a semget: its id was {said.strip()}.")
