"""Turns between Xen domains: Xen, a dom0 and two guests inside QEMU (tests/xen/run.sh).

All of it is emulated, so the times say how the ways of communication compare, and nothing about the
speed of Xen. One boot measures all methods in all places, so many times.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence

from vshmem_lab.model import Failed, Missing, Reading, Turn
from vshmem_lab.paths import CHECKOUT, ROOT

LINE = re.compile(
    r"^measured (native|host-guest|guest-guest) (bare|semaphore|segment|tcp) \d+ (\d+)$"
)
LIMIT = 1800
SKIPPED = 77

Samples = dict[tuple[str, str], list[Reading]]


def parse(said: str) -> Samples:
    """The readings by place and method, in the order of the runs."""
    found: Samples = {}
    for line in said.splitlines():
        match = LINE.match(line.strip())
        if match:
            place, method, ns = match.groups()
            reading = Reading(float(ns), placement="a virtual core each", accelerator="tcg")
            found.setdefault((place, method), []).append(reading)
    return found


class Domains:
    """The machine with Xen. It measures everything at its first turn, also for later ones."""

    most = 64

    def __init__(self, repetitions: int) -> None:
        self._repetitions = repetitions
        self._samples: Samples = {}

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The next reading of each turn's place and method."""
        found = []
        for turn in turns:
            key = (turn.case.environment.removeprefix("Xen "), turn.contender.words[0])
            if not self._samples.get(key):
                self._play(max(seconds, 1))
            if not self._samples.get(key):
                raise Failed(f"The machine with Xen did not measure {' '.join(key)}.")
            found.append(self._samples[key].pop(0))
        return found

    def _play(self, seconds: float) -> None:
        script = ROOT / "tests" / "xen" / "run.sh"
        if not CHECKOUT or not script.exists():
            raise Missing(
                "Xen is measured from a checkout only: tests/xen/run.sh is not installed."
            )
        settings = {"XEN_RUNS": str(self._repetitions), "XEN_SECONDS": str(seconds)}
        process = subprocess.Popen(
            [str(script), "papers"],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except BaseException as error:
            # The script and its machine: a shell that waits for a pipe heeds no signal of its own.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"The machine with Xen did not end within {LIMIT} s.") from None
            raise
        if process.returncode == SKIPPED:
            raise Missing(
                said.strip().splitlines()[-1] if said.strip() else "Xen can't be had here."
            )
        if process.returncode != 0:
            raise Failed(f"The machine with Xen failed:\n{said}")
        self._samples = parse(said)
