"""Removes what a lab that was killed has left: pools, machines, and shared memory of rivals.

Whatever the lab makes for a run has the number of a process in its name: of the lab, or of the
rival's program. It is left over when that process is gone.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from pathlib import Path

from vshmem_lab.builds import vshmem
from vshmem_lab.model import Failed

SHARED = Path("/dev/shm")
# Rivals' programs name what they put there so: `channel-PID-WHAT`; the suite `programs`:
# `lab-PID-WHAT`.
FILES = re.compile(r"(?:channel|lab)-(\d+)-")
POOL = re.compile(r"vshmem-(lab-(\d+)-.*)")
CLUSTER = re.compile(r"lab-(\d+)-")


def _gone(pid: str) -> bool:
    """Whether there is no such process."""
    return not Path(f"/proc/{pid}").exists()


def sweep_files() -> None:
    """Files of rivals and programs that were killed; what belongs to others stays."""
    for path in SHARED.iterdir():
        found = FILES.match(path.name)
        if not found or not _gone(found[1]):
            continue
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def sweep() -> None:
    """Everything."""
    sweep_files()
    for path in SHARED.glob("vshmem-lab-*"):
        found = POOL.fullmatch(path.name)
        if found and _gone(found[2]):
            with contextlib.suppress(Failed):
                vshmem("pool", "rm", "--force", str(path))
    with contextlib.suppress(Failed, subprocess.TimeoutExpired):
        for cluster in json.loads(vshmem("ps", "--json"))["clusters"]:
            found = CLUSTER.match(cluster["name"])
            if found and _gone(found[1]):
                vshmem("down", "--cluster", cluster["name"])
