"""Whether a machine was quiet enough for a run that is to be kept: before it, and beside it.

What a run starts inherits a variable with the lab's number. All other processes are strangers: a
thread reads now and then what processor time they have taken, with that of their children that
have ended, so that compilers are seen which live for less than a moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from pathlib import Path

# The most load before a run, in processes that want a processor.
LOAD = 0.5
# The most of a processor that strangers may take during one.
SHARE = 0.1
# What is told of a run that has not begun.
NOTHING = {"share": 0.0, "seconds": 0.0, "names": []}
# Seconds from look to look. One takes some milliseconds.
EVERY = 10.0
VARIABLE = "VSHMEM_LAB_RUN"
_TICKS = os.sysconf("SC_CLK_TCK")
_INIT, _KERNEL = 1, 2


def refusals(about: dict) -> list[str]:
    """Why a run is not to be kept; nothing if it may be."""
    machine, found = about["machine"], []
    if not about.get("complete"):
        found.append("it is not complete (vshmem lab run --resume goes on with it)")
    if "+" in machine["commit"] or machine["commit"] == "unknown":
        found.append(f"it measured {machine['commit']}, which is no commit alone: commit first")
    load = machine.get("load before")
    if load is None or load >= LOAD:
        told = "is not known" if load is None else f"was {load:g}"
        found.append(f"the load before it {told}, and is to be below {LOAD:g}: wait a little")
    beside = about.get("beside")
    if beside is None:
        found.append("what ran beside it was not watched: measure it again")
    elif beside["share"] > SHARE:
        names = ", ".join(beside["names"])
        found.append(
            f"other programs took {beside['share']:.0%} of a processor beside it ({names}), and "
            f"may take {SHARE:.0%}: end them"
        )
    return found


class Watch:
    """`with Watch() as w`: what strangers take meanwhile; `w.told()` says it."""

    def __init__(self, before: dict | None = NOTHING, proc: Path = Path("/proc")) -> None:
        """With what was told of an earlier part of the run; None where that is not known."""
        self._proc, self._before = proc, before
        self._mark = f"{VARIABLE}={os.getpid()}".encode()
        self._taken: Counter[str] = Counter()  # seconds, by name
        self._last: dict[int, tuple[str, float]] = {}
        self._began = self._ended = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        os.environ[VARIABLE] = str(os.getpid())
        self._last = self._strangers()
        self._thread.start()
        return self

    def __exit__(self, *_exc) -> None:
        self._over.set()
        self._thread.join()
        self.look()
        os.environ.pop(VARIABLE, None)

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            self.look()

    def look(self) -> None:
        """Adds what strangers have taken since the last look."""
        now = self._strangers()
        for pid, (name, seconds) in now.items():
            # One that is new has taken all of it since.
            _, before = self._last.get(pid, (name, 0.0))
            self._taken[name] += max(seconds - before, 0)
        self._last, self._ended = now, time.monotonic()

    def taken(self, name: str) -> float:
        """The seconds that programs of this name have taken, by the last look."""
        return self._taken[name]

    def told(self) -> dict | None:
        """For a run's metadata: the share of a processor, its seconds, and who took most."""
        if self._before is None:
            return None
        taken = sum(self._taken.values())
        names = [name for name, some in self._taken.most_common(3) if some > 0.01 * taken]
        names = list(dict.fromkeys([*self._before["names"], *names]))
        seconds = self._ended - self._began + self._before["seconds"]
        taken += self._before["share"] * self._before["seconds"]
        share = taken / seconds if seconds else 0.0
        return {"share": round(share, 4), "seconds": round(seconds, 1), "names": names}

    def _strangers(self) -> dict[int, tuple[str, float]]:
        """The name of each, and its seconds of processor time."""
        ours, found = self._family(), {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit() or int(folder.name) in ours:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                name, parent, own, children = _stat(folder)
                if _KERNEL in (int(folder.name), parent) or self._is_ours(folder):
                    continue
                # init has the time of all whose parents have died, ours among them.
                waited = 0 if int(folder.name) == _INIT else children
                found[int(folder.name)] = name, (own + waited) / _TICKS
        return found

    def _family(self) -> set[int]:
        """The lab and who started it, who only wait for it."""
        found, pid = set(), os.getpid()
        while pid > _INIT and pid not in found:
            found.add(pid)
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = _stat(self._proc / str(pid))[1]
        return found

    def _is_ours(self, folder: Path) -> bool:
        """Whether this run has started it: by the variable; a machine's QEMU by its cluster."""
        named = f"lab-{os.getpid()}-".encode()
        with contextlib.suppress(OSError):
            if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                return True
        return named in (folder / "cmdline").read_bytes()


def _stat(folder: Path) -> tuple[str, int, int, int]:
    """A process's name, its parent, and its own ticks and those of its ended children."""
    text = (folder / "stat").read_text()
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    user, system, of_children, systems = map(int, fields[11:15])
    return name, int(fields[1]), user + system, of_children + systems
