"""tests/xen/run.sh: how it is started, and why it can't be."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from vshmem_lab.model import Missing
from vshmem_lab.paths import CHECKOUT, ROOT

SKIPPED = 77
# Seconds that it has to end QEMU and to remove its files.
ENDING = 20


def script() -> Path:
    """Its path. Raises Missing where this is no checkout."""
    path = ROOT / "tests" / "xen" / "run.sh"
    if not CHECKOUT or not path.exists():
        raise Missing("Xen is measured from a checkout only: tests/xen/run.sh is not installed.")
    return path


def check(status: int | None, said: str) -> None:
    """Raises Missing, with its reason, if a script that has ended was skipped."""
    if status == SKIPPED:
        lines = said.strip().splitlines()
        raise Missing(lines[-1] if lines else "Xen can't be had here.")


def end(process: subprocess.Popen) -> None:
    """Ends the script, which leads a session, and its machine.

    A shell that waits for a pipe heeds no signal of its own, so all of them get it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
