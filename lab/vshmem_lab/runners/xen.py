"""Turns between Xen domains: Xen, a dom0 and two guests inside QEMU (tests/xen/run.sh).

All of it is emulated, so the times say how the ways of communication compare, and nothing about the
speed of Xen. One boot measures all methods in all places, so many times.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence

from vshmem_lab.model import Failed, Reading, Turn
from vshmem_lab.runners import xen_script

LINE = re.compile(
    r"^measured (host-host|host-guest|guest-guest|host-guest-up|guest-guest-up) "
    r"(raw|bakery|swap|segment|tcp|vchan|vchan-polled) (\d+) ([\d.]+)$"
)
LIMIT = 3600
# What an environment's name begins with, and ends with where dom0 has one processor.
XEN, UP = "Xen ", ", dom0 without SMP"


def place(environment: str) -> str:
    """As tests/xen/bench/papers.sh calls it."""
    found = environment.removeprefix(XEN)
    return f"{found.removesuffix(UP)}-up" if found.endswith(UP) else found


# By place, method and size.
Samples = dict[tuple[str, str, str], list[Reading]]


def parse(said: str) -> Samples:
    """The readings, in the order of the runs."""
    found: Samples = {}
    for line in said.splitlines():
        match = LINE.match(line.strip())
        if match:
            *key, ns = match.groups()
            reading = Reading(float(ns), placement="a virtual core each", accelerator="tcg")
            found.setdefault(tuple(key), []).append(reading)
    return found


class Domains:
    """The machine with Xen. It measures everything at once, for so many repetitions."""

    most = 64

    def __init__(self, repetitions: int, seconds: float) -> None:
        self._samples: Samples = {}
        # Cases may show the same; each goes through the readings by itself.
        self._shown: Counter[tuple[str, ...]] = Counter()
        self._play(repetitions, max(seconds, 1))

    def measure(self, turns: Sequence[Turn], seconds: float) -> list[Reading]:
        """The next reading of each turn's place, method and size."""
        return [self._next(turn) for turn in turns]

    def _next(self, turn: Turn) -> Reading:
        words = [word.format(size=turn.size) for word in turn.contender.words]
        key = (place(turn.case.environment), *words)
        at = self._shown[turn.case.name, *key]
        if at >= len(self._samples.get(key, [])):
            raise Failed(f"The machine with Xen did not measure {' '.join(key)}.")
        self._shown[turn.case.name, *key] += 1
        return self._samples[key][at]

    def _play(self, repetitions: int, seconds: float) -> None:
        script = xen_script.script()
        settings = {"XEN_RUNS": str(repetitions), "XEN_SECONDS": str(seconds)}
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
        for key, readings in parse(said).items():
            self._samples.setdefault(key, []).extend(readings)
