"""Turns between Xen domains: Xen, a dom0 and two guests inside QEMU (tests/xen/run.sh).

All of it is emulated, so the times say how the ways of communication compare, and nothing about the
speed of Xen. One boot measures all methods in all places, so many times.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from vshmem_lab.model import Failed, Reading, Turn
from vshmem_lab.runners import xen_script

LINE = re.compile(
    r"^measured (native|host-guest|guest-guest) (bare|semaphore|segment|tcp) \d+ (\d+)$"
)
LIMIT = 1800

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
        script = xen_script.script()
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
            xen_script.end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"The machine with Xen did not end within {LIMIT} s.") from None
            raise
        xen_script.check(process.returncode, said)
        if process.returncode != 0:
            raise Failed(f"The machine with Xen failed:\n{said}")
        self._samples = parse(said)
