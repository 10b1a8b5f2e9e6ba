"""The demo: two virtual machines that share one pool, and programs that know nothing of it.

Stock perl sends on a System V queue to stock Python in the other machine; then the lab measures how
long a message takes between the machines and inside one kernel. Prints a table, draws a plot, and
leaves nothing running.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from vshmem_lab import analysis, paths, system, topology
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver
from vshmem_lab.model import Case, Failed
from vshmem_lab.report.write import write
from vshmem_lab.runners.machines import Machines
from vshmem_lab.runners.table import Runners
from vshmem_lab.store import Store
from vshmem_lab.text import quantity

SECONDS = 0.2
REPETITIONS = 3
CHOICE = Choice(
    ("sharing",), cases=("Sync with a payload",), environments=("guest-guest", "native")
)
QUEUE_KEY = "0x5653484d"
PLACES = {"guest-guest": "between machines", "native": "in one kernel"}
# Of the contenders: those of the floor, of UDP and of TCP in one kernel are in the report.
SUMMARY = {"guest-guest": ("Vshmem", "TCP"), "native": ("Vshmem", "kernel")}
LINES = ["Hello from one kernel.", "This queue lives in memory that both machines map."]


class Progress:
    """Says what happens, with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self._began:4.0f} s] {text}", flush=True)

    def begin(self, case: Case) -> None:
        """A case begins."""
        self.say(f"messages there and back, {case.environment}: Vshmem and others, in turns")

    def step(self, case: Case, done: int) -> None:
        """Repetitions are too short to be told."""


def stock(program: str) -> str:
    """The system's own program, which the machines have too."""
    path = f"/usr/bin/{program}"
    if not os.access(path, os.X_OK):
        raise Failed(f"{path} is not there. Run: scripts/prepare.sh --install demo")
    return path


def perl_to_python(machines: Machines) -> None:
    """One stock program in each machine, over one queue."""
    sender, receiver = machines.names
    scripts = paths.LAB / "demo"
    receive = [stock("python3"), str(scripts / "receive.py"), QUEUE_KEY]
    send = [stock("perl"), str(scripts / "send.pl"), QUEUE_KEY, *LINES]
    both = ["--vm", sender, "--", *send, ":", "--vm", receiver, "--", *receive]
    said = machines.do("run", *both, what="perl and python in the two machines", within=240)
    for line in said.splitlines():
        print(f"         {line}", flush=True)
    missing = [line for line in LINES if line not in said]
    if missing:
        raise Failed(f"Python did not receive {missing[0]!r}.")


def _play(progress: Progress, folder: Path) -> None:
    progress.say("compiling the C programs (nothing of Vshmem is included or linked)")
    paths.build_programs()
    # The machines first: what they show is the point.
    cases = sorted(selected(CHOICE), key=lambda case: case.environment)
    about = {
        "repetitions": REPETITIONS,
        "seconds": SECONDS,
        "machine": system.describe(),
        "cases": analysis.describe(cases),
        "complete": True,
    }
    store = Store.create(folder, about)
    with Runners(topology.pair(), REPETITIONS, SECONDS) as runners:
        progress.say("booting two virtual machines that share one pool: vshmem up -n 2")
        machines = runners.machines()
        progress.say(f"they are up ({machines.booted_in:.1f} s)")
        progress.say("perl in one machine sends on a System V queue to python in the other")
        perl_to_python(machines)
        Driver(runners.find, store, REPETITIONS, SECONDS, progress).run(cases)
        progress.say("turning the machines off")


def summary(run: analysis.Run) -> str:
    """What was measured, in a few lines of 80 columns."""
    rows: dict[str, dict[str, str]] = {}
    for table in run.tables:
        for line in table.lines:
            if not line.contender.startswith(SUMMARY[table.environment]):
                continue
            contender = line.contender.replace("kernel,", "System V,")
            name = f"{PLACES[table.environment]}: {contender}"
            found = quantity(line.summary.median, table.unit) if line.summary else "missing"
            rows.setdefault(name, {})[line.sized] = found
    sizes = list(dict.fromkeys(size for row in rows.values() for size in row))
    out = [f"{'a message there and back':<49}" + "".join(f"{size:>10}" for size in sizes)]
    for name, row in rows.items():
        out.append(f"{name:<49}" + "".join(f"{row.get(size, ''):>10}" for size in sizes))
    if any(table.emulated for table in run.tables):
        out.append("The machines are emulated, which makes TCP look worse than it is under KVM.")
    return "\n".join(out)


def demo() -> int:
    """Plays the demo; 1 if a step failed, with what to do about it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = paths.runs() / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _play(Progress(), folder)
    except KeyboardInterrupt:
        print("demo: ended by ctrl-C; the machines are off", file=sys.stderr)
        return 130
    run = analysis.load(folder)
    report, *_ = write(run, folder)
    print(f"\n{summary(run)}\nThe whole report, with plots: {report}")
    failed = [line for table in run.tables for line in table.lines if line.error]
    return 1 if failed else 0
