"""Programs that are run for a measurement: with a time limit, and never left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from vshmem_lab.model import Failed, Missing

LIMIT_SECONDS = 120
# The kernel kills the program when the lab has ended, however that came.
TIED = ("setpriv", "--pdeathsig", "KILL")


def tied(argv: Sequence[str]) -> list[str]:
    """The command line of a program that ends with the lab. Raises Missing if it is not there."""
    if shutil.which(argv[0]) is None:
        raise Missing(f"{argv[0]} is not installed.")
    return [*(TIED if shutil.which(TIED[0]) else ()), *argv]


def run(
    argv: Sequence[str], extra: dict[str, str] | None = None, limit: float = LIMIT_SECONDS
) -> str:
    """Runs a program with a few more variables; its output. Raises Failed with what it said."""
    try:
        done = subprocess.run(
            tied(argv),
            env={**os.environ, **(extra or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{named(argv)} hung for {limit:g} s and was ended.") from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or "it said nothing"
        raise Failed(f"{named(argv)} {ending(done.returncode)}: {said}")
    return done.stdout


def named(argv: Sequence[str]) -> str:
    """A command line in a message: without what sets its priority and processors, and folders."""
    words = [Path(word).name if word.startswith("/") else word for word in argv]
    programs = [i for i, word in enumerate(argv) if word.startswith("/")]
    return " ".join(words[programs[0] if programs else 0 :])


def ending(status: int) -> str:
    """How a process ended."""
    return f"was killed by signal {-status}" if status < 0 else f"failed with status {status}"


@contextlib.contextmanager
def started(argv: Sequence[str], extra: dict[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """A program that runs beside us; it has ended when the block has."""
    process = subprocess.Popen(
        tied(argv),
        env={**os.environ, **(extra or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def finish(process: subprocess.Popen, what: str, limit: float = LIMIT_SECONDS) -> str:
    """Waits for a process that `started` started; its output."""
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise Failed(f"{what} did not end within {limit:g} s. So far:\n{said}") from None
    if process.returncode != 0:
        raise Failed(f"{what} {ending(process.returncode)}: {said.strip()}")
    return said
