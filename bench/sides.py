"""Where a benchmark runs: natively, or under the interposer with a pool of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import priority

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
LIMIT_SECONDS = 120
# Limits of the pool, as NAME=VALUE, where the usual ones are too low.
LIMITS = ("semmni=100000", "shmmni=32768")


# The user as whom root measures: nobody.
ORDINARY = 65534


class Failed(Exception):
    """A step failed; the message says what happened and what to do."""


def release_dir() -> Path:
    """Where cargo leaves the release build."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def library() -> Path:
    """The interposer."""
    path = Path(os.environ.get("VSHMEM_LIB", release_dir() / "libvshmem.so"))
    if not path.exists():
        raise Failed("libvshmem.so is not built. Run: make build")
    return path


def command() -> Path:
    """The `vshmem` command."""
    path = Path(os.environ.get("VSHMEM_BIN", release_dir() / "vshmem"))
    if not path.exists():
        raise Failed("The command vshmem is not built. Run: make build")
    return path


def build_programs() -> None:
    """Compiles the C programs into bench/out."""
    done = subprocess.run(
        ["make", "--silent", "-C", str(ROOT / "bench"), f"OUT={OUT}"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Failed(f"The benchmarks' C programs don't compile:\n{done.stdout}{done.stderr}")


@dataclass(frozen=True)
class Build:
    """A build of Vshmem: its interposer and its command, which understand the same pools."""

    library: Path
    command: Path


def current() -> Build:
    """What is measured."""
    return Build(library(), command())


def earlier(folder: Path) -> Build:
    """An earlier build, to compare with: a folder such as target/release of another checkout."""
    build = Build(folder.resolve() / "libvshmem.so", folder.resolve() / "vshmem")
    for path in (build.library, build.command):
        if not path.exists():
            raise Failed(f"{path} does not exist. Build the earlier version first (make build).")
    return build


def vshmem(*arguments: str, limit: int = LIMIT_SECONDS, build: Build | None = None) -> str:
    """Runs `vshmem ARGUMENTS`, of another build if one is given; its output."""
    done = subprocess.run(
        [str(build.command if build else command()), *arguments],
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
    """A local pool for the time of a benchmark, with limits that 100,000 IPC objects fit in."""

    name: str
    build: Build

    @property
    def path(self) -> Path:
        """Its file: where an ordinary user can reach it, too."""
        return Path(f"/dev/shm/vshmem-{self.name}")

    def __enter__(self) -> Pool:
        limits = [word for limit in LIMITS for word in ("--limit", limit)]
        vshmem("pool", "create", str(self.path), "--size", "2G", *limits, build=self.build)
        if os.geteuid() == 0:
            os.chown(self.path, ORDINARY, ORDINARY)
        return self

    def __exit__(self, *_exc) -> None:
        vshmem("pool", "rm", str(self.path), build=self.build)

    def environment(self) -> dict[str, str]:
        """What makes a program use this pool for every key."""
        return {
            "LD_PRELOAD": str(self.build.library),
            "VSHMEM_POOL": str(self.path),
            "VSHMEM_KEYS": "all",
        }

    def check_interposed(self) -> None:
        """Vshmem's ids have bit 30 set: makes sure that calls don't reach the kernel."""
        probe = (
            "import ctypes; c = ctypes.CDLL(None); i = c.semget(0, 1, 0o1600); "
            "c.semctl(i, 0, 0, 0); print(i)"
        )
        said = run([sys.executable, "-c", probe], self.environment())
        if not (int(said) > 0 and int(said) >> 30 & 1):
            raise Failed(f"The interposer did not take a semget: its id was {said.strip()}.")


def run(
    argv: list[str],
    extra: dict[str, str] | None = None,
    prioritize: Callable[[list[str]], list[str]] = list,
) -> str:
    """Runs a program with a few more variables; its output. Raises Failed with what it said."""
    what = " ".join([Path(argv[0]).name, *argv[1:]])
    try:
        done = subprocess.run(
            prioritize(argv),
            env={**os.environ, **(extra or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what} hung for {LIMIT_SECONDS} s and was ended.") from None
    if done.returncode != 0:
        said = done.stderr.strip() or "it said nothing"
        raise Failed(f"{what} failed with status {done.returncode}: {said}")
    return done.stdout


def measure(
    benchmark: str, seconds: float, extra: dict[str, str] | None = None, as_root: bool = False
) -> list[float]:
    """Runs ipcbench once, as an ordinary user; the number of each line that it prints."""
    user = ["-u", str(ORDINARY)] if os.geteuid() == 0 and not as_root else []
    # With more processes than processors the usual scheduler is part of what is measured.
    prioritize = priority.heavy if benchmark.startswith("crowd") else priority.real_time
    argv = [str(OUT / "ipcbench"), "-t", str(seconds), *user, *benchmark.split()]
    said = run(argv, extra, prioritize)
    return [float(line.split()[0]) for line in said.splitlines()]
