"""What a run was measured on: processor, kernel, commit, versions. No host's name, no path."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from vshmem_lab import builds, priority
from vshmem_lab.model import Failed
from vshmem_lab.paths import CHECKOUT, ROOT

# What programs say of themselves; those that are missing are left out.
VERSIONS = {
    "QEMU": ("qemu-system-x86_64", "--version"),
    "MPI": ("mpiexec", "--version"),
    "hwloc": ("lstopo-no-graphics", "--version"),
    "C compiler": ("cc", "--version"),
}

# Debian's packages of what contends; those that are missing are left out.
PACKAGES = (
    *("libopenblas0-pthread", "libblis4-serial", "libatlas3-base", "libblas3"),
    *("hpcc", "lammps", "podman", "libvirt-daemon", "xen-hypervisor-4.17-amd64"),
)

USER_OF_ROOT = "nobody, where a row does not say root; root for pairs of programs"


def processor() -> str:
    """The processor's name and how many of them this process may use."""
    name = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} usable"


def commit() -> str:
    """The commit that was measured, marked if the tree differs from it, but in kept results."""
    if not CHECKOUT:
        return "installed"
    git = ["git", "-C", str(ROOT)]
    try:
        named = [*git, "describe", "--always", "--abbrev=10"]
        done = subprocess.run(named, capture_output=True, text=True)
        changed = [*git, "status", "--porcelain", "--", ".", ":(exclude)docs/results"]
        differs = subprocess.run(changed, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return "unknown"
    name = done.stdout.strip()
    return f"{name}{'+changes' if differs else ''}" if name else "unknown"


def versions() -> dict[str, str]:
    """Of Vshmem and of what it is compared with. What the kernel has has the kernel's version."""
    found = {"Linux": platform.release(), "C library": " ".join(platform.libc_ver())}
    with contextlib.suppress(Failed):
        found["Vshmem"] = builds.current().version()
    for name, argv in VERSIONS.items():
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
            lines = (done.stdout or done.stderr).strip().splitlines()
            if done.returncode == 0 and lines:
                found[name] = lines[0]
    with contextlib.suppress(OSError):
        argv = ["dpkg-query", "--show", "--showformat=${Package}\t${Version}\n", *PACKAGES]
        listed = subprocess.run(argv, capture_output=True, text=True).stdout
        pairs = (line.split("\t") for line in listed.splitlines())
        found |= {name: version for name, version in pairs if version}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["kernel_tuner"] = importlib.metadata.version("kernel_tuner")
    return found


def load() -> float:
    """Processes that wanted a processor in the last minute."""
    return round(os.getloadavg()[0], 2)


def virtual() -> str:
    """Whether this machine is itself a virtual one."""
    flags = Path("/proc/cpuinfo").read_text()
    return "virtual" if " hypervisor" in flags else "bare metal, as far as it says"


def describe() -> dict:
    """For a run's metadata."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "processor": processor(),
        "kernel": f"{platform.system()} {platform.release()}",
        "this machine": virtual(),
        "user": USER_OF_ROOT if os.geteuid() == 0 else "ordinary",
        "priority": priority.description(),
        "load before": load(),
        "versions": versions(),
    }


def stamp() -> str:
    """A name for a run: date, time and commit."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y-%m-%d-%H%M%S}-{commit().split('+')[0]}"
