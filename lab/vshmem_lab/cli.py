"""The command `vshmem lab`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vshmem_lab import analysis, archive, carried, carry, paths, running, topology
from vshmem_lab.beside.run import beside
from vshmem_lab.choice import Choice
from vshmem_lab.comparison import compare
from vshmem_lab.demo import demo
from vshmem_lab.features import table as features
from vshmem_lab.model import Failed
from vshmem_lab.papers import page as page_of_papers
from vshmem_lab.papers import plan
from vshmem_lab.papers.cases import PAPERS
from vshmem_lab.papers.host import Host
from vshmem_lab.papers.page import Kept
from vshmem_lab.papers.plan import Times
from vshmem_lab.report import docs, hypervisors
from vshmem_lab.report.grid import as_text
from vshmem_lab.report.write import write
from vshmem_lab.suites.table import ABOUT, SUITES
from vshmem_lab.text import size, size_text

EPILOG = """\
examples:
  vshmem lab run sharing rivals
  vshmem lab run sharing --case Sync --environment native --repetitions 25
  vshmem lab run --resume
  vshmem lab run papers --plan
  vshmem lab report
  vshmem lab compare OLD NEW
"""
# In miniature: whether everything runs, not how fast.
MINIATURE = {"repetitions": 1, "seconds": 0.02}
REPETITIONS = 12


def pair(text: str) -> tuple[int, int]:
    """Two processors, as 0,1."""
    one, other = text.split(",")
    return int(one), int(other)


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    every = f"{', '.join(SUITES)}; or {PAPERS}: all rows of docs/papers.md"
    add("suites", nargs="*", metavar="SUITE", help=f"of: {every}")
    for name, what in (
        ("case", "cases whose name contains this"),
        ("contender", "contenders whose name contains this; the floor is always measured"),
        ("environment", "environments whose name contains this: native, guest-guest, ..."),
    ):
        add(
            f"--{name}",
            action="append",
            default=[],
            metavar="WORD",
            help=f"only {what}; =WORD: is it",
        )
    add("--size", action="append", default=[], type=size, metavar="BYTES", help="only these sizes")
    add(
        "--repetitions",
        type=int,
        metavar="N",
        help=f"of each case ({REPETITIONS}, or the papers' number where a case has one)",
    )
    add("--seconds", type=float, default=0.2, help="of each turn (0.2)")
    add(
        "--within",
        type=float,
        metavar="MINUTES",
        help="each case once, or its fewest times, and again as often as there is time for",
    )
    add("--processors", type=pair, metavar="A,B", help="of two processes (the first and the last)")
    add("--before", metavar="FOLDER", default="", help="an earlier build, in the same turns")
    add("--miniature", action="store_true", help="one short repetition: does everything run?")
    add("--plan", action="store_true", help=f"of {PAPERS}: what can be measured here, and how long")
    add("--strict", action="store_true", help="fail if a limit is missed or a contender failed")
    add("--output", type=Path, metavar="FOLDER", help="where the run is kept")
    add("--resume", nargs="?", const="", metavar="RUN", help="go on with this run, or the last one")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser("vshmem lab", epilog=EPILOG, formatter_class=raw)
    top.description = "Measures Vshmem and what is used instead of it, in turns, with statistics."
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="suites, their cases and contenders; runs")
    listing.add_argument("suites", nargs="*", metavar="SUITE")
    _run_options(commands.add_parser("run", help="measure suites, or go on with a run"))
    compared = commands.add_parser("compare", help="what changed between two runs")
    compared.add_argument("old", metavar="OLD")
    compared.add_argument("new", metavar="NEW")
    reported = commands.add_parser("report", help="a page, Markdown and plots of a run")
    reported.add_argument("run", nargs="?", metavar="RUN", help="by default the last one")
    kept = commands.add_parser(
        "keep", help="copy a run, or one that was sent in, to docs/results of a checkout"
    )
    kept.add_argument("run", metavar="RUN")
    kept.add_argument("name", metavar="NAME", help="as DATE-SUITE")
    commands.add_parser("docs", help="make the documentation's tables from kept results")
    carry_command = commands.add_parser(
        "carry",
        help="the suite cores as one script, for a larger machine that has nothing installed",
    )
    carry_command.add_argument("file", type=Path, metavar="FILE", help="the script")
    asked = commands.add_parser("features", help="what the hypervisors here say that they can do")
    asked.add_argument("--boot-xen", action="store_true", help="ask Xen, too, in QEMU; a minute")
    others = commands.add_parser("beside", help="what other tools see of what doctor is shown")
    others.add_argument("file", type=Path, metavar="FILE", help="where what they say is kept")
    commands.add_parser("demo", help="two machines, unmodified programs, a table and a plot")
    return top


def folder_of(name: str) -> Path:
    """A run by its name or folder, or one that was sent in as a file."""
    known = paths.runs() / name
    folder = known if known.is_dir() else Path(name)
    if folder.is_file():
        return carried.unpack(folder) if carried.is_results(folder) else archive.unpack(folder)
    if not folder.is_dir():
        raise Failed(f"There is no run {name}. `vshmem lab list` shows them.")
    return folder


def _list(options: argparse.Namespace) -> int:
    for suite in options.suites or SUITES:
        if suite not in SUITES:
            raise Failed(f"There is no suite {suite}. There are: {', '.join(SUITES)}.")
        print(f"{suite}: {ABOUT[suite]}")
        for case in SUITES[suite] if options.suites else ():
            sizes = ", ".join(size_text(size, case.counts) for size in case.sizes if size)
            print(f"  {case.label}{': ' + sizes if sizes else ''}")
            print(f"    {'; '.join(contender.name for contender in case.contenders)}")
    runs = sorted(file.parent.name for file in paths.runs().glob("*/run.json"))
    if runs and not options.suites:
        print("runs:", *runs, sep="\n  ")
    return 0


def _run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        if options.suites:
            raise Failed("--resume goes on with a run's own suites; name none.")
        return running.resume(folder_of(options.resume) if options.resume else None)
    if not options.suites:
        raise Failed(f"Name suites: {', '.join(SUITES)}.")
    if options.miniature:
        vars(options).update(MINIATURE)
    count = REPETITIONS if options.repetitions is None else options.repetitions
    if count < 1 or options.seconds <= 0:
        raise Failed("There is at least one repetition, and a turn takes time.")
    if options.within is not None and options.within <= 0:
        raise Failed("--within is a number of minutes.")
    if options.plan:
        return _plan(options)
    words = (options.case, options.contender, options.environment, options.size)
    asked = options.repetitions is not None
    choice = Choice(tuple(options.suites), *map(tuple, words), options.before, asked)
    processors = topology.pair(options.processors)
    times = (count, options.seconds)
    asked_for = running.Plan(choice, *times, processors, options.within)
    folder = options.output
    code, folder = running.new(asked_for, folder)
    return code or (strict(folder) if options.strict else 0)


def _plan(options: argparse.Namespace) -> int:
    """Prints what of the papers this host can measure; nothing is."""
    if options.suites != [PAPERS]:
        raise Failed(f"--plan is of {PAPERS}: vshmem lab run {PAPERS} --plan")
    times = Times(Kept(), options.repetitions or REPETITIONS)
    host = Host()
    found = plan.items(host, times)
    print("\n\n".join(as_text(one) for one in plan.grids(found, host, times)))
    return 0


def strict(folder: Path) -> int:
    """1 if a limit was missed or a contender failed; says which."""
    run = analysis.load(folder)
    failed = running.failures(run)
    print("\n".join(f"failed: {line}" for line in failed), file=sys.stderr)
    return 1 if failed or run.limits()[1] else 0


def _report(options: argparse.Namespace) -> int:
    folder = folder_of(options.run) if options.run else running.last()
    for path in write(analysis.load(folder), folder):
        print(running.shown(path))
    return 0


def _keep(options: argparse.Namespace) -> int:
    print(running.shown(docs.keep(folder_of(options.run), options.name)))
    return 0


def _docs(_options: argparse.Namespace) -> int:
    for page in [*docs.fill(), *page_of_papers.fill()]:
        print(running.shown(page))
    return 0


def _carry(options: argparse.Namespace) -> int:
    print(f"There: sh {carry.pack(options.file).name}, for nine minutes; it leaves one file.")
    return 0


def _features(options: argparse.Namespace) -> int:
    columns = features.probe(options.boot_xen)
    print("\n\n".join(as_text(found) for found in hypervisors.features(columns)))
    return 0


def _beside(options: argparse.Namespace) -> int:
    print(running.shown(beside(options.file)))
    return 0


def _compare(options: argparse.Namespace) -> int:
    print(as_text(compare(folder_of(options.old), folder_of(options.new))))
    return 0


def entry() -> None:
    """The command, as pip installs it."""
    sys.exit(main())


def main() -> int:
    """Runs a command; its exit code."""
    options = parser().parse_args()
    commands = {
        "list": _list,
        "run": _run,
        "beside": _beside,
        "carry": _carry,
        "compare": _compare,
        "keep": _keep,
        "docs": _docs,
        "report": _report,
        "features": _features,
        "demo": lambda _: demo(),
    }
    try:
        return commands[options.command](options)
    except Failed as failure:
        print(f"vshmem lab: {failure}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return running.INTERRUPTED
