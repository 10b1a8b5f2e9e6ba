"""What a result was measured on: processor, kernel, commit. Never a host's name or a path."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path

import priority
from sides import ROOT

LOAD = os.getloadavg()[0]


def processor() -> str:
    """The processor's name and how many of them this process may use."""
    name = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
            break
    return f"{name}, {len(os.sched_getaffinity(0))} usable"


def commit() -> str:
    """The commit that was measured, marked if the tree differs from it."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+changes", "--abbrev=10"],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def description() -> dict[str, str]:
    """Lines for the head of a result."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "processor": processor(),
        "kernel": f"{platform.system()} {platform.release()}",
        "user": "nobody, where a row does not say root" if os.geteuid() == 0 else "ordinary",
        "priority": priority.description(),
        "load": f"{LOAD:.2g} processes before the start",
    }


def heading() -> str:
    """The same as text."""
    return "\n".join(f"{key + ':':<11}{value}" for key, value in description().items())


def stamp() -> str:
    """A name for a result: date, time and commit."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y-%m-%d-%H%M}-{commit().split('+')[0]}"
