"""The demo's latencies: as a table, and as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from pong import Measurement

SIZES = (8, 1024, 65536)
MACHINES, VSHMEM, KERNEL = "between two machines", "one kernel, Vshmem", "one kernel, System V"
LABELS = {
    "segment": "V-shmem with V-sem",
    "queue": "V-msgq",
    "tcp": "TCP",
    "udp": "UDP",
}
KERNEL_LABELS = {"segment": "shared memory with semaphores", "queue": "message queue"}


def label(place: str, method: str) -> str:
    """What a method is called there."""
    return KERNEL_LABELS[method] if place == KERNEL else LABELS[method]


def size_text(size: int) -> str:
    """8 B, 1 KiB, 64 KiB."""
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def time_text(ns: float) -> str:
    """Nanoseconds in a unit that reads well."""
    for limit, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if ns < limit:
            return f"{ns / limit * 1e3:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def times_text(ratio: float) -> str:
    """A ratio in three digits, or in whole numbers with thousands marked."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


class Latencies:
    """Times there and back, by place, method and size."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str, int], Measurement] = {}

    def add(self, place: str, found: list[Measurement]) -> None:
        """Keeps what was measured at a place."""
        for measurement in found:
            self.of[place, measurement.method, measurement.size] = measurement

    def ns(self, place: str, method: str, size: int) -> float | None:
        """One time."""
        found = self.of.get((place, method, size))
        return found.ns if found else None

    def methods(self, place: str) -> list[str]:
        """The methods that were measured there, in the order of the table."""
        return [m for m in LABELS if any((place, m, size) in self.of for size in SIZES)]

    def _times(self, place: str, method: str) -> list[str]:
        cells = []
        for size in SIZES:
            found = self.of.get((place, method, size))
            mark = "*" if found and found.pieces > 1 else " "
            cells.append((time_text(found.ns) if found else "-") + mark)
        return cells

    def _ratios(self, place: str, slow: str, other: str, fast: str) -> list[str]:
        cells = []
        for size in SIZES:
            a, b = self.ns(place, slow, size), self.ns(other, fast, size)
            cells.append(times_text(a / b) + " x " if a and b else "- ")
        return cells

    def table(self) -> str:
        """Everything that was measured, with ratios."""
        lines = [line("there and back, median", [size_text(s) + " " for s in SIZES])]
        for place in (MACHINES, VSHMEM, KERNEL):
            if not self.methods(place):
                continue
            lines += ["", place]
            lines += [
                line("  " + label(place, m), self._times(place, m)) for m in self.methods(place)
            ]
            lines += self._ratio_lines(place)
        lines += ["", *self._notes()]
        return "\n".join(lines)

    def _ratio_lines(self, place: str) -> list[str]:
        if place == MACHINES:
            pairs = [
                (slow, place, fast) for slow in ("tcp", "udp") for fast in ("segment", "queue")
            ]
        elif place == KERNEL:
            pairs = [(method, VSHMEM, method) for method in ("segment", "queue")]
        else:
            return []
        out = []
        for slow, other, fast in pairs:
            against = LABELS[fast] if place == MACHINES else "Vshmem's"
            name = f"  {label(place, slow)} / {against}"
            cells = self._ratios(place, slow, other, fast)
            if any(cell != "- " for cell in cells):
                out.append(line(name, cells))
        return out

    def _notes(self) -> list[str]:
        notes = []
        for place in (MACHINES, VSHMEM, KERNEL):
            bare, semaphore = self.ns(place, "bare", 8), self.ns(place, "semaphore", 8)
            if bare and semaphore:
                ratio = times_text(semaphore / bare)
                notes.append(
                    f"{place}: two words of shared memory, bare {time_text(bare)}, "
                    f"a pair of semaphores {time_text(semaphore)} ({ratio} x)"
                )
        cut = {(p, m): f.pieces for (p, m, _), f in self.of.items() if f.pieces > 1}
        for (place, method), pieces in cut.items():
            why = "a datagram holds" if method == "udp" else "msgmax allows for a message"
            what = f"* {place}, {label(place, method)}"
            notes.append(f"{what}: 64 KiB in {pieces} pieces, more than {why}")
        return notes

    def write_csv(self, path: Path) -> None:
        """One line a measurement; how many times faster than TCP between the machines."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["place", "method", "bytes", "nanoseconds", "pieces", "tcp_ratio"])
            for (place, method, size), found in self.of.items():
                tcp = self.ns(place, "tcp", size)
                ratio = f"{tcp / found.ns:.4g}" if tcp else ""
                writer.writerow([place, method, size, f"{found.ns:.0f}", found.pieces, ratio])


def line(name: str, cells: list[str]) -> str:
    """A line of the table."""
    return (f"{name:<44}" + "".join(f"{cell:>12}" for cell in cells)).rstrip()
