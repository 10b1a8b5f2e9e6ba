"""Whether this host's KVM boots a machine: that /dev/kvm is there says little."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from vshmem_lab import paths
from vshmem_lab.builds import vshmem
from vshmem_lab.model import Failed, Missing

ROOT = Path("/")
# A machine of KVM boots in seconds; under a KVM that runs no such kernel never.
PATIENCE = 30


def refused(root: Path = ROOT) -> str:
    """Why no machine boots by KVM; nothing if one does."""
    device = root / "dev" / "kvm"
    if not os.access(device, os.R_OK | os.W_OK):
        return "there is no /dev/kvm that this user may use"
    cluster = ("--cluster", f"lab-{os.getpid()}-kvm")
    paths.command()  # without which nothing can be said
    print(f"Whether KVM boots a machine is tried, for {PATIENCE} s at most.", file=sys.stderr)
    try:
        words = ("-n", "1", "--accel", "kvm", "--timeout", str(PATIENCE))
        vshmem("up", *cluster, *words, limit=2 * PATIENCE)
    except (Failed, subprocess.TimeoutExpired):
        return "no machine boots by this host's KVM"
    finally:
        vshmem("down", *cluster)
    return ""


@functools.cache
def _here() -> str:
    return refused()


def needed() -> None:
    """Raises Missing if no machine boots by KVM; that is tried once."""
    if why := _here():
        raise Missing(f"{why[:1].upper()}{why[1:]}.")
