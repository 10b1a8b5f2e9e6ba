"""`vshmem lab run`: measures, keeps what is done, and goes on with a run that was interrupted."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vshmem_lab import analysis, archive, leftovers, paths, quiet, system
from vshmem_lab.analysis import Run
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver, wanted
from vshmem_lab.environments import XEN
from vshmem_lab.features import table as features
from vshmem_lab.model import Case, Failed
from vshmem_lab.papers import plan as papers_plan
from vshmem_lab.papers.cases import PAPERS
from vshmem_lab.papers.host import Host
from vshmem_lab.papers.page import Kept
from vshmem_lab.papers.plan import Times
from vshmem_lab.progress import Steps
from vshmem_lab.report.grid import text_of
from vshmem_lab.runners import channels
from vshmem_lab.runners.algebra_programs import CHOOSING
from vshmem_lab.runners.table import Runners
from vshmem_lab.store import Store, read_about
from vshmem_lab.suites import hypervisors

INTERRUPTED = 130


@dataclass(frozen=True)
class Plan:
    """How a run is carried out."""

    choice: Choice
    repetitions: int
    seconds: float
    processors: tuple[int, int]
    minutes: float | None = None  # as many repetitions as there is time for; each case has one


def new(plan: Plan, folder: Path | None) -> tuple[int, Path]:
    """A new run; its exit code and its folder."""
    cases = selected(plan.choice)
    if PAPERS in plan.choice.suites:
        cases = _doable(cases, plan.repetitions)
    folder = folder or paths.runs() / system.stamp()
    about = {
        "choice": dataclasses.asdict(plan.choice),
        "repetitions": plan.repetitions,
        "seconds": plan.seconds,
        "processors": list(plan.processors),
        "minutes": plan.minutes,
        "machine": system.describe(),
        "cases": analysis.describe(cases),
        "complete": False,
        "beside": quiet.NOTHING,
    }
    if any(case.suite == hypervisors.SUITE for case in cases):
        about["features"] = features.probe(boot_xen=_has_xen(cases))
    return _measure(plan, cases, Store.create(folder, about), about), folder


def _doable(cases: Sequence[Case], repetitions: int) -> list[Case]:
    """The cases of papers' rows that this host can measure."""
    found = papers_plan.items(Host(), Times(Kept(), repetitions))
    able = {(case.suite, case.name, case.environment) for case in papers_plan.cases(found)}
    count = sum(1 for item in found if not item.why)
    print(
        f"{count} of {len(found)} tables and figures can be measured here; `vshmem lab run "
        f"{PAPERS} --plan` says which.",
        file=sys.stderr,
    )
    return [case for case in cases if (case.suite, case.name, case.environment) in able]


def _has_xen(cases: Sequence[Case]) -> bool:
    """Whether a domain of Xen contends."""
    names = {one.name for case in cases for one in case.contenders}
    return any(name.startswith(f"{XEN}, ") for name in names)


def resume(folder: Path | None) -> int:
    """Goes on with a run, by default the last one."""
    folder = folder or last()
    about = read_about(folder)
    if about["machine"]["commit"] != system.commit():
        was = about["machine"]["commit"]
        raise Failed(f"{folder.name} measures the commit {was}, and this one is {system.commit()}.")
    if about["machine"]["processor"] != system.processor():
        was = about["machine"]["processor"]
        raise Failed(f"{folder.name} was measured on another machine ({was}), and goes on there.")
    choice = Choice.of(about["choice"])
    one, other = about["processors"]
    plan = Plan(choice, about["repetitions"], about["seconds"], (one, other), about.get("minutes"))
    machine = about["machine"]
    machine["load before"] = max(machine["load before"], system.load())
    begun = {(case["suite"], case["case"], case["environment"]) for case in about["cases"]}
    cases = selected(choice)
    cases = [case for case in cases if (case.suite, case.name, case.environment) in begun]
    return _measure(plan, cases, Store.resume(folder), about)


def last() -> Path:
    """The run that was begun last."""
    found = sorted(paths.runs().glob("*/run.json"), key=lambda file: file.parent.name)
    if not found:
        raise Failed("There is no run yet. Begin one: vshmem lab run sharing")
    return found[-1].parent


def _measure(plan: Plan, cases: Sequence[Case], store: Store, about: dict) -> int:
    until = time.monotonic() + 60 * plan.minutes if plan.minutes else None
    leftovers.sweep()
    for name in CHOOSING:  # also of what is no program of ours
        os.environ.pop(name, None)
    paths.build_programs()
    before = Path(plan.choice.before) if plan.choice.before else None
    total = sum(wanted(case, plan.repetitions) for case in cases)
    watch = quiet.Watch(about.get("beside"))
    # Of a lab that is killed it is not known.
    store.describe({**about, "beside": None})
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED + 13))
    try:
        times = (plan.repetitions, plan.seconds)
        with watch, Runners(plan.processors, *times, before) as runners, Steps(total) as steps:
            Driver(runners.find, store, *times, steps, until).run(cases)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. What was measured is kept; go on with:\n  {again(store)}",
            file=sys.stderr,
        )
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, handler)
        about["beside"] = watch.told()
        # The disk may be full, which is said already: it stays unknown, as of a lab that is killed.
        with contextlib.suppress(Failed):
            store.describe(about)
    about["machine"]["versions"] |= channels.versions()
    about |= {"complete": True, "load after": system.load()}
    store.describe(about)
    run = analysis.load(store.folder)
    store.describe({**about, "noise": run.noise()})
    print(text_of(run))
    print(f"kept in {shown(store.folder)}; a page of it: vshmem lab report {named(store.folder)}")
    if PAPERS in plan.choice.suites:
        file = shown(archive.pack(store.folder))
        print(f"to be sent in: {file}; in a checkout: vshmem lab keep {file} NAME")
    return 0


def again(store: Store) -> str:
    """The command that goes on with a run."""
    return f"vshmem lab run --resume {named(store.folder)}"


def named(folder: Path) -> str:
    """What to call a run: its name, or the folder if it is kept elsewhere."""
    return folder.name if folder.parent == paths.runs() else shown(folder)


def shown(folder: Path) -> str:
    """A folder as it is shown: from here, if it is below."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


def failures(run: Run) -> list[str]:
    """Contenders that failed or were missing."""
    return [
        f"{table.title}: {line.contender}: {line.error}"
        for table in run.tables
        for line in table.lines
        if line.error
    ]
