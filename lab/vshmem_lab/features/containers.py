"""What podman says of itself: its host, its runtime, and the options that it takes."""

from __future__ import annotations

import json
from pathlib import Path

from vshmem_lab.features import words
from vshmem_lab.features.words import Column, listed
from vshmem_lab.process import run

# Options of `podman run` that say what a container can be given.
DEVICES, NODES = ("--device", "--gpus"), ("--cpuset-mems",)
SHARED = ("--ipc", "--shm-size")


def column() -> Column:
    """podman and the runtime that it uses."""
    host = json.loads(run(["podman", "info", "--format", "json"]))["host"]
    options = run(["podman", "run", "--help"]).split()
    runtime = host["ociRuntime"]
    has_criu = "+CRIU" in runtime["version"].split()
    by_criu = "checkpoint by CRIU" if has_criu else f"no: {runtime['name']} is built without CRIU"
    groups = f"cgroups {host['cgroupVersion']} ({', '.join(host.get('cgroupControllers') or [])})"
    return {
        words.VERSION: run(["podman", "--version"]).split()[-1],
        words.MEANS: f"one kernel: name spaces by {runtime['name']}, {groups}",
        words.GUESTS: host["arch"],
        words.CPUS: f"the host's {host['cpus']}",
        words.MEMORY: f"the host's {words.binary(host['memTotal'])}",
        words.MODELS: "the host's",
        words.PASSTHROUGH: listed([one for one in DEVICES if one in options]),
        words.HUGE: f"the host's: transparent {words.transparent()}, {words.reserved()}",
        words.NUMA: listed([one for one in NODES if one in options]),
        words.SHARED: listed([one for one in SHARED if one in options]),
        words.MIGRATION: by_criu,
        words.SNAPSHOTS: by_criu,
        words.CLOCK: "the host's",
        words.NESTED: "/dev/kvm, if it is given" if Path("/dev/kvm").exists() else "no /dev/kvm",
        words.GRAPHICS: "/dev/dri, if it is given" if Path("/dev/dri").exists() else "no /dev/dri",
    }
