"""Where processors sit to each other, by hwloc."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET

# hwloc's types of what two processors share, the closest first, and what is said of them.
SHARED = (
    ("Core", "SMT siblings"),
    ("L2Cache", "same L2"),
    ("L3Cache", "same L3"),
    ("Die", "same die"),
    ("Package", "same socket"),
    ("Machine", "other socket"),
)


def pair(chosen: tuple[int, int] | None = None) -> tuple[int, int]:
    """The processors of two processes: the chosen ones, or the first and the last."""
    if chosen:
        return chosen
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


@functools.cache
def _described() -> ET.Element | None:
    program = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if program is None:
        return None
    done = subprocess.run([program, "--no-io", "--of", "xml", "-"], capture_output=True, text=True)
    return ET.fromstring(done.stdout) if done.returncode == 0 else None


def relation(one: int, other: int, described: ET.Element | None = None) -> str:
    """The closest thing that two processors share."""
    if one == other:
        return "same processor"
    machine = described if described is not None else _described()
    if machine is None:
        return "unknown (no hwloc)"
    shared = set(_above(machine, one)) & set(_above(machine, other))
    return next(text for kind, text in SHARED if kind in {e.get("type") for e in shared})


def _above(machine: ET.Element, processor: int) -> list[ET.Element]:
    """What a processor is in, and it itself."""
    for element in machine.iter("object"):
        chain = _chain(element, processor)
        if chain:
            return chain
    return []


def _chain(element: ET.Element, processor: int) -> list[ET.Element]:
    if element.get("type") == "PU":
        return [element] if element.get("os_index") == str(processor) else []
    for part in element.findall("object"):
        chain = _chain(part, processor)
        if chain:
            return [element, *chain]
    return []


def placement(processors: tuple[int, int]) -> str:
    """For a result: which processors, and how far apart."""
    one, other = processors
    return f"cores {one} and {other}: {relation(one, other)}"
