"""Compares where machines run with what `vshmem ps --json` says, which comes in on standard input.

Prints a line for each machine: its name and "placed", or how that differs.
"""

import json
import os
import re
import sys


def numbers(text):
    """The set that a list of the kernel (0-3,8) means."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def lengths(pid):
    """Mappings by their start, and how long they are."""
    found = {}
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            found[start] = end - start
    return found


def bound(pid, policy, nodes):
    """Bytes of mappings that have a policy (bind, prefer) for these nodes."""
    total, length = 0, lengths(pid)
    with open(f"/proc/{pid}/numa_maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            match = re.match(r"([0-9a-f]+) (\w+)(?: \(many\))?:([0-9,-]+)", line)
            if match and match[2] == policy and numbers(match[3]) <= nodes:
                total += length.get(int(match[1], 16), 0)
    return total


def differences(machine):
    """How a machine differs from its placement."""
    placement, pid = machine["placement"], machine["pid"]
    if placement is None:
        return ["it has no placement"]
    found = []
    pinned = placement["rules"]["policy"] != "unpinned"
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="ascii", errors="replace") as comm:
            name = comm.read().strip()
        core = re.match(r"CPU (\d+)/", name)
        wanted = placement["vcpus"][int(core[1])] if core else placement["emulator"]
        actual = os.sched_getaffinity(int(thread))
        if pinned and actual != numbers(wanted):
            found.append(f"{name} on {sorted(actual)} instead of {wanted}")
    policies = {"strict": "bind", "preferred": "prefer", "interleave": "interleave"}
    policy, nodes = policies[placement["rules"]["memory"]], numbers(placement["nodes"])
    if nodes and bound(pid, policy, nodes) < machine["memory"]:
        found.append(f"{bound(pid, policy, nodes)} bytes {policy} {placement['nodes']}")
    return found


for machine in json.load(sys.stdin)["clusters"][0]["machines"]:
    print(machine["name"], "; ".join(differences(machine)) or "placed")
