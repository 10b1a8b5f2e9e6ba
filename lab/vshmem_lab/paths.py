"""Where things are: in a checkout, or where `make install` put them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vshmem_lab.model import Failed, Missing

# The folder with this package, the C programs and their Makefile.
LAB = Path(__file__).resolve().parent.parent
ROOT = LAB.parent
CHECKOUT = (ROOT / "Cargo.toml").exists()
LIBRARY = "libvshmem.so.1"
# What the Makefile and the programs of channels say where one can't be had, and why.
MISSING = "missing: "


def target() -> Path:
    """Where cargo builds, and what is made here lies."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def _home(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / otherwise) / "vshmem" / "lab"


def programs() -> Path:
    """The folder of the compiled C programs."""
    return target() / "lab" / "programs" if CHECKOUT else _home("XDG_CACHE_HOME", ".cache")


def environment() -> set[Path]:
    """The folders of our Python, where they are not the system's."""
    return {Path(found) for found in (sys.prefix, sys.base_prefix) if found != "/usr"}


def runs() -> Path:
    """The folder of runs."""
    return target() / "lab" / "runs" if CHECKOUT else _home("XDG_STATE_HOME", ".local/state")


def command() -> Path:
    """The command `vshmem`: VSHMEM_BIN, that of the checkout, or the installed one."""
    if "VSHMEM_BIN" in os.environ:
        path = Path(os.environ["VSHMEM_BIN"])
    elif CHECKOUT:
        path = target() / "release" / "vshmem"
    else:
        path = Path(shutil.which("vshmem") or "/usr/bin/vshmem")
    if not path.exists():
        raise Failed(f"The command vshmem is not built: there is no {path.name}. Run: make build")
    return path


def library() -> Path:
    """The interposer: VSHMEM_LIB, that of the checkout, or the installed one."""
    if "VSHMEM_LIB" in os.environ:
        path = Path(os.environ["VSHMEM_LIB"])
    elif CHECKOUT:
        path = target() / "release" / "libvshmem.so"
    else:
        path = _installed_library()
    if not path.exists():
        raise Failed(f"The library is not built: there is no {path.name}. Run: make build")
    return path


def _installed_library() -> Path:
    beside = command().resolve().parent.parent / "lib" / LIBRARY
    if beside.exists():
        return beside
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if line.strip().startswith(LIBRARY):
            return Path(line.rsplit("=> ", 1)[1])
    return beside


def build_programs(goal: str = "all", folder: Path | None = None, more: Sequence[str] = ()) -> None:
    """Compiles the C programs, or those of a goal of the Makefile, perhaps into another folder.

    Raises Missing if a package that one needs is not installed.
    """
    argv = ["make", "--silent", "-C", str(LAB), f"OUT={folder or programs()}", *more, goal]
    if goal == "dwarfs-vshmem":
        argv += [f"LIBRARY={library()}"]
        argv += [] if CHECKOUT else [f"INCLUDE={library().parent.parent / 'include'}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True)
    except FileNotFoundError:
        raise Failed("make is not there. Run: scripts/prepare.sh --install lab") from None
    if done.returncode == 0:
        return
    for line in done.stderr.splitlines():
        if line.startswith(MISSING):
            raise Missing(line.removeprefix(MISSING))
    raise Failed(f"The lab's C programs can't be compiled:\n{done.stdout}{done.stderr}")
