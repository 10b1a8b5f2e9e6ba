"""What numad does to a machine that works: judged by its outcome, since it says nothing."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from vshmem_lab.beside.plants import Planted
from vshmem_lab.beside.witnesses import Shell

SECONDS = 60
KHUGEPAGED = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"
# A boot sector that spins, so that the machine is worth numad's while.
SPIN = r"{ printf '\353\376'; head -c 508 /dev/zero; printf '\125\252'; } >/run/spin"
NODE = re.compile(r"N(\d+): (\d+)")


@dataclass(frozen=True)
class State:
    """Of a machine: MiB on each node, and where its processor may run."""

    memory: dict[str, int]
    processor: str
    khugepaged: str  # ms between its rounds: numad sets that of the whole system

    @property
    def waits(self) -> str:
        """How long khugepaged waits, in words."""
        return f"{float(self.khugepaged) / 1000:g} s"

    @property
    def said(self) -> str:
        """In words."""
        nodes = ", ".join(f"{mib} MiB on node {node}" for node, mib in self.memory.items())
        return f"{nodes}; processor on {self.processor}; khugepaged each {self.waits}"


def state(shell: Shell) -> State:
    """How the machine is placed now."""
    awk = (
        "{ s = 4; if (match($0, /kernelpagesize_kB=[0-9]+/)) s = substr($0, RSTART + 18) + 0; "
        "for (i = 2; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split(substr($i, 2), a, "
        '"="); n[a[1]] += a[2] * s } } END { for (k in n) print "N" k ": " int(n[k] / 1024) }'
    )
    said = shell(
        f"p=$(cat /run/guest.pid); awk '{awk}' /proc/$p/numa_maps; "
        "t=$(grep -l '^CPU 0/' /proc/$p/task/*/comm | cut -d / -f 5); "
        f"taskset -pc $t | sed 's/.*: /may run: /'; echo khugepaged: $(cat {KHUGEPAGED})"
    )
    memory = {node: int(mib) for node, mib in sorted(NODE.findall(said)) if int(mib) > 0}
    may = re.search(r"may run: (\S+)", said)
    wait = re.search(r"khugepaged: (\S+)", said)
    return State(memory, may[1] if may else "?", wait[1] if wait else "?")


def outcomes(shell: Shell) -> list[dict]:
    """A machine whose memory is far, and one that is placed well: before numad, and after it."""
    shell(SPIN)
    found = []
    for name, node in (("memory is on the other node", 1), ("all is on one node", 0)):
        machine = Planted(node=node, paused=False)
        shell(machine.started())
        before = state(shell)
        shell(f"numad -i 5 -l 6; sleep {SECONDS}; numad -i 0; sleep 2")
        after = state(shell)
        shell(machine.ended())
        log = shell("cat /var/log/numad.log 2>/dev/null || :").strip().splitlines()
        both = {"before": asdict(before), "after": asdict(after)}
        found.append({"name": name, **both, "log": log[-20:]})
        shell(": >/var/log/numad.log")
    return found
