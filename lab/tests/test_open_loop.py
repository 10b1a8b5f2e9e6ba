"""An open loop takes each message from when it was due: a stall meets all that were due in it."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from vshmem_lab import paths
from vshmem_lab.runners import lines

INTERVAL_MS, SECONDS, STALL_MS = 0.2, 1.0, 200


def stalled(*options: str) -> float:
    """p99 in ms of a pair of which one process stands still for a fifth of the time."""
    paths.build_programs()
    key = f"{0x4F000000 | os.getpid():#x}"
    argv = [
        paths.programs() / "pingpong",
        "-k",
        key,
        "-t",
        str(SECONDS),
        *options,
        "semaphore",
        "8",
    ]
    pair = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in "12"]
    try:
        time.sleep(SECONDS / 4)
        pair[0].send_signal(signal.SIGSTOP)
        time.sleep(STALL_MS / 1000)
        pair[0].send_signal(signal.SIGCONT)
        said = "".join(process.communicate(timeout=60)[0] for process in pair)
    finally:
        for process in pair:
            process.kill()
            process.wait()
    ((_, _, reading),) = lines.pongs(said)
    assert reading.p99 is not None
    return reading.p99 / 1e6


def test_a_stall_is_not_omitted() -> None:
    assert stalled("-i", str(int(INTERVAL_MS * 1e6))) > STALL_MS / 2


if os.uname().machine != "x86_64":
    pytest.skip("pingpong is for x86-64", allow_module_level=True)
