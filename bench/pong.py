"""What pingpong, wakeup and netpong print, and pingpong on this kernel alone."""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

import priority
from sides import OUT, Failed

LIMIT_SECONDS = 240
LINE = re.compile(r"\b(bare|semaphore|segment|queue|bell|woken|tcp|udp) (\d+) (\d+) (\d+)$")


class Measurement(NamedTuple):
    """One line of pingpong, wakeup or netpong."""

    method: str
    size: int  # bytes of payload
    ns: float  # there and back, median
    pieces: int  # messages or datagrams that the payload was cut into


def parse(said: str) -> list[Measurement]:
    """The measurements among lines of output, with or without a machine's name before them."""
    found = []
    for line in said.splitlines():
        match = LINE.search(line.strip())
        if match:
            method, size, ns, pieces = match.groups()
            found.append(Measurement(method, int(size), float(ns), int(pieces)))
    return found


def pingpong_command(seconds: float, plan: list[str]) -> list[str]:
    """With a key of its own, so that what an earlier run left behind can't be met."""
    key = f"{0x50000000 | os.getpid():#x}"
    return [str(OUT / "pingpong"), "-k", key, "-t", str(seconds), *plan]


def wakeup_command(seconds: float, times: int) -> list[str]:
    """As above, by both methods, so often."""
    key = f"{0x57000000 | os.getpid():#x}"
    return [str(OUT / "wakeup"), "-k", key, "-t", str(seconds), "-n", str(times), "bell", "woken"]


def local_pingpong(seconds: float, plan: list[str], extra: dict[str, str]) -> list[Measurement]:
    """Two pingpong processes on two processors of this kernel."""
    cpus = sorted(os.sched_getaffinity(0))
    argv = pingpong_command(seconds, plan)
    pair = [
        subprocess.Popen(
            priority.real_time(["taskset", "-c", str(cpu), *argv]),
            env={**os.environ, **extra},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for cpu in (cpus[0], cpus[-1])
    ]
    said = ""
    try:
        for process in pair:
            said += process.communicate(timeout=LIMIT_SECONDS)[0]
    except subprocess.TimeoutExpired:
        raise Failed(f"pingpong on this kernel did not end within {LIMIT_SECONDS} s.") from None
    finally:
        for process in pair:
            process.kill()
            process.wait()
    if any(process.returncode != 0 for process in pair):
        raise Failed(f"pingpong on this kernel failed: {said.strip()}")
    return parse(said)
