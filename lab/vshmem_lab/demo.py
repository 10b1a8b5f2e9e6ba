"""The demo: two virtual machines that share one pool, and programs that know nothing of it.

Stock perl sends on a System V queue to stock Python in the other machine; then the lab measures how
long a message takes between the machines and inside one kernel, as often as a verdict needs. Prints
what was shown, draws a plot, and leaves nothing running.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from vshmem_lab import analysis, paths, quiet, system, topology
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver
from vshmem_lab.model import Case, Failed
from vshmem_lab.report.chart import bars
from vshmem_lab.report.write import slug, write
from vshmem_lab.runners.machines import Machines
from vshmem_lab.runners.table import Runners
from vshmem_lab.stats import FEWEST
from vshmem_lab.store import Store
from vshmem_lab.suites.parts import SEGMENT
from vshmem_lab.text import quantity, times

SECONDS = 0.05
REPETITIONS = FEWEST
CHOICE = Choice(
    ("sharing",),
    cases=("Sync with a payload",),
    environments=("guest-guest", "native"),
    sizes=(8, 65536),
)
QUEUE_KEY = "0x5653484d"
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
    watch = quiet.Watch()
    with watch, Runners(topology.pair(), REPETITIONS, SECONDS) as runners:
        progress.say("booting two virtual machines that share one pool: vshmem up -n 2")
        machines = runners.machines()
        progress.say(f"they are up ({machines.booted_in:.1f} s)")
        progress.say("perl in one machine sends on a System V queue to python in the other")
        perl_to_python(machines)
        Driver(runners.find, store, REPETITIONS, SECONDS, progress).run(cases)
        progress.say("turning the machines off")
    store.describe({**about, "beside": watch.told()})


SHOWN = (
    "Two virtual machines shared one pool. In one, stock perl sent on a System V queue; in the "
    "other, stock Python received it. Neither program knows of Vshmem."
)
EMULATED = "The machines are emulated, which makes TCP look worse than it is under KVM."


@dataclass(frozen=True)
class Claim:
    """A sentence that the samples fill in: Vshmem's way and another one, of one size."""

    environment: str
    size: int
    ours: str
    theirs: str
    text: str


WAY = f"Vshmem, {SEGMENT}"
CLAIMS = (
    Claim(
        "guest-guest",
        8,
        WAY,
        "TCP",
        "8 bytes there and back between the machines: {} through the pool, {} by TCP",
    ),
    Claim(
        "guest-guest",
        65536,
        WAY,
        "TCP",
        "64 KiB there and back between the machines: {} through the pool, {} by TCP",
    ),
    Claim(
        "native",
        8,
        WAY,
        f"kernel, {SEGMENT}",
        "8 bytes there and back in one kernel: {} through the pool, {} by the kernel's System V",
    ),
)


def conclusion(run: analysis.Run) -> list[str]:
    """What was shown, with its figures. Raises Failed if one was not measured."""
    return [
        SHOWN,
        *(_filled(run, claim) for claim in CLAIMS),
        *([EMULATED] if run.emulated else []),
    ]


def _filled(run: analysis.Run, claim: Claim) -> str:
    """A claim's sentence: both medians, and what the comparison says."""
    tables = [table for table in run.tables if table.environment == claim.environment]
    if len(tables) != 1:
        raise Failed(f"{claim.environment} was not measured.")
    (table,) = tables
    found = {(line.contender, line.size): line for line in table.lines}
    ours, theirs = (found[name, claim.size] for name in (claim.ours, claim.theirs))
    for line in (ours, theirs):
        if line.summary is None:
            raise Failed(f"{line.contender} was not measured in {claim.environment}: {line.error}")
    medians = (quantity(line.summary.median, table.unit) for line in (ours, theirs))
    said = claim.text.format(*medians)
    against = theirs.against
    if theirs.reference != claim.ours:
        raise Failed(f"{theirs.contender} was compared with {theirs.reference or 'nothing'}.")
    if against is None or not against.real:
        return f"{said}; that may be noise."
    # Of the figures that are shown; the report's is that of the pairs.
    return f"{said}, {times(theirs.summary.median / ours.summary.median)} times as long."


def report(run: analysis.Run, folder: Path) -> str:
    """Writes the run's pages. What the terminal is to show: the conclusion, the bars, the paths."""
    lead = conclusion(run)
    page, *_ = write(run, folder, lead)
    shown, *figures = (
        textwrap.fill(line, 80, initial_indent="  ", subsequent_indent="  ") for line in lead
    )
    table = next(table for table in run.tables if table.environment == "guest-guest")
    drawn = bars(table, 78, plain=not _shows("█"))
    image = folder / "plots" / f"{slug(table)}.svg"
    parts = [
        "What was shown",
        shown,
        "",
        *figures,
        "",
        "A message there and back between the machines",
    ]
    parts += [f"  {line}" for line in drawn]
    parts += ["", f"The bars as an image: {image}", f"The report, with all samples: {page}"]
    return "\n".join(parts)


def _shows(text: str) -> bool:
    """Whether the terminal has these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


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
    print(f"\n{report(run, folder)}")
    failed = [line for table in run.tables for line in table.lines if line.error]
    return 1 if failed else 0
