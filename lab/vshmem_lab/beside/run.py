"""Plants one thing after another in an emulated machine with two nodes, and asks each tool."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from vshmem_lab import leftovers, paths, system
from vshmem_lab.beside import numad, witnesses
from vshmem_lab.beside.plants import (
    GUEST,
    HOST,
    MACHINE,
    MODEL,
    PLANTS,
    POOR,
    Plant,
    Planted,
)
from vshmem_lab.model import Failed
from vshmem_lab.process import run
from vshmem_lab.running import INTERRUPTED

CPUS, HALF = 2, 1 << 30
LIMIT = 900
NEEDS = ("tuned-adm", "virt-host-validate", "numad", "dbus-daemon", "qemu-system-x86_64")
SERIES = "6.1"
MODULES = ("irqbypass", "ccp", "kvm", "kvm-amd", "tun", "tap", "vhost_iotlb", "vhost", "vhost_net")


def _answer() -> str:
    """What a placement says that gives the machine two nodes of a processor each."""
    node = {"memory": HALF, "host": 0}
    nodes = [
        {**node, "vcpus": "0", "distances": [10, 21]},
        {**node, "vcpus": "1", "distances": [21, 10]},
    ]
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    rules = {"policy": "unpinned", "cores": "preferred", "memory": "preferred"}
    machine = {
        "name": "vm0",
        "memory": CPUS * HALF,
        "rules": {**rules, "smt": False, "reserve_cores": 0},
        "vcpus": [cpus] * CPUS,
        "emulator": cpus,
        "nodes": "",
        "guest": {"sockets": CPUS, "cores": 1, "threads": 1, "nodes": nodes},
        "why": [],
        "fallbacks": [],
    }
    return json.dumps({"version": 1, "topology": "faked", "machines": [machine]})


def _kernel() -> str:
    """Debian's kernel with all of its modules: that of machines has only those which they need."""
    build = str(paths.ROOT / "kmod" / "build.sh")
    version = run([build, "--newest", SERIES], limit=LIMIT).strip()
    return run([build, "--image", version.replace("-cloud-", "-")], limit=LIMIT).strip()


class Machine:
    """`with machine() as m`: m.shell runs a script in it, as root."""

    def __init__(self, command: Path, cluster: str) -> None:
        self._command, self._cluster = str(command), cluster

    def shell(self, script: str) -> str:
        """A script's output. Raises Failed with what it said."""
        words = ["exec", "-c", self._cluster, "-u", "root", "vm0", "--", "sh", "-c", script]
        return run([self._command, *words], limit=LIMIT)


def _qemu(folder: Path, model: str) -> None:
    """A QEMU whose machines have this model of a processor, whatever else it is told."""
    qemu = folder / "qemu-system-x86_64"
    told = f'case " $* " in *" -accel "*) set -- "$@" -cpu {model} ;; esac'
    qemu.write_text(f'#!/bin/sh\n{told}\nexec {shutil.which(qemu.name)} "$@"\n')
    qemu.chmod(0o755)


@contextlib.contextmanager
def machine(model: str | None = None) -> Iterator[Machine]:
    """An emulated machine with two nodes and the modules of a host; nothing is left of it.

    Its processor's model is the best that QEMU emulates, or this one.
    """
    cluster = f"lab-{os.getpid()}-beside"
    with tempfile.TemporaryDirectory(prefix="beside.") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file in (paths.command(), paths.library()):
            shutil.copy(file, folder)
        place = folder / "vshmem-place"
        (folder / "answer").write_text(_answer())
        place.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {folder}/answer\n")
        place.chmod(0o755)
        kernel = _kernel()
        lib = paths.ROOT / "tests" / "lib" / "modules.sh"
        script = f'. "{lib}"; kernel_modules "$@"'
        load = run(["sh", "-c", script, "sh", kernel, str(folder), *MODULES])
        command = folder / "vshmem"
        size = ("-n", "1", "--cpus", str(CPUS), "--memory", "2G", "--placement", "unpinned")
        more = ("--no-net", "--accel", "tcg", "--timeout", "600", "--kernel", kernel)
        shares = [w for f in (folder, paths.command().parent) for w in ("--share", str(f))]
        path = os.environ["PATH"]
        if model:
            _qemu(folder, model)
            path = f"{folder}:{path}"
        try:
            words = [str(command), "up", "-c", cluster, *size, *more, *shares]
            run(words, {"PATH": path}, limit=LIMIT)
            found = Machine(command, cluster)
            found.shell(f"set -e; mkdir /run/modules; cp {folder}/*.ko /run/modules; {load}")
            yield found
        finally:
            run([str(command), "down", "-c", cluster])


def _asked(here: Machine, part: str) -> list[dict]:
    """Each plant of a part: what each tool says that it did not say before."""
    usual = Planted() if part == HOST else None
    before = witnesses.all_said(here.shell)
    found: list[dict] = [{"name": "", "part": part, "check": "", "said": before}]
    if usual:
        empty = before
        here.shell(usual.started())
        before = witnesses.all_said(here.shell)
        found.append(_new(MACHINE, empty, before))
    for plant in (one for one in PLANTS if one.part == part):
        began = time.monotonic()
        if plant.machine and usual:
            here.shell(usual.ended())
        for script in (plant.plant, plant.machine.started() if plant.machine else ""):
            if script:
                here.shell(script)
        after = witnesses.all_said(here.shell)
        if plant.machine and usual:
            here.shell(plant.machine.ended())
        if plant.undo:
            here.shell(plant.undo)
        if plant.machine and usual:
            here.shell(usual.started())
        found.append(_new(plant, before, after))
        took = time.monotonic() - began
        print(f"{took:.0f} s: {json.dumps(found[-1])}", file=sys.stderr)
    again = witnesses.all_said(here.shell)
    if again != before:
        raise Failed(f"The machine is not as it was before the plants: {before}, now {again}")
    if usual:
        here.shell(usual.ended())
    return found


def _new(plant: Plant, before: dict, after: dict) -> dict:
    """What each tool says of a plant that it did not say before."""
    said = {tool: [line for line in after[tool] if line not in before[tool]] for tool in after}
    return {"name": plant.name, "part": plant.part, "check": plant.check, "said": said}


def _version(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip().splitlines()[0]


def beside(file: Path) -> Path:
    """Runs all of it, and writes what was said into the file. Takes some minutes, emulated."""
    missing = [program for program in NEEDS if shutil.which(program) is None]
    if missing or not paths.CHECKOUT:
        lacks = f"{missing[0]} is not installed" if missing else "this is no checkout"
        raise Failed(f"The tools can't be set beside doctor: {lacks}.")
    leftovers.sweep()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED + 13))
    versions = {
        "vshmem": _version([str(paths.command()), "--version"]),
        "tuned": _version(["tuned-adm", "--version"]),
        "virt-host-validate": f"libvirt {_version(['virt-host-validate', '--version'])}",
        "numad": _version(["numad", "-V"]),
    }
    with machine() as here:
        witnesses.start_tuned(here.shell)
        plants = []
        for part in (GUEST, HOST):
            witnesses.profile(here.shell, part)
            plants += _asked(here, part)
        about = {"machine": system.describe(), "versions": versions, "plants": plants}
        about["kernel"] = here.shell("uname -r").strip()
        about["numad"] = numad.outcomes(here.shell)
    usual = next(one["said"] for one in plants if one["part"] == GUEST)
    with machine(MODEL) as here:
        witnesses.start_tuned(here.shell)
        witnesses.profile(here.shell, GUEST)
        plants.append(_new(POOR, usual, witnesses.all_said(here.shell)))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    return file
