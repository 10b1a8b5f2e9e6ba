"""Runs all of mpi4py's own tests by several ranks, file by file, and compares two such runs.

parts.py run --tests DIR --ranks N [--budget SECONDS] [--files REGEX] [--resume]
             [--but FILE NAMES] RECORD COMMAND...

Files run one after the other in one job, whose ranks COMMAND starts; a program of Python's is
added to it. If a file takes longer than SECONDS (300), or ends the job, the job is ended, and
another one goes on with the next file. RECORD is a directory that all ranks see; with --resume,
files whose outcome is there already are not run again. Exit status 1: not all files were run to
their end.

parts.py compare [--but FILE NAMES] ONE OTHER

Compares what came of each test in each rank of two runs. Exit status 1: something differs.

FILE says what is left out of a run, and which tests may differ; its head says how. NAMES are those
of the MPI and of the hosts, with a comma between.
"""

import argparse
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
NAME = re.compile(r"test_\w+")  # of a file, in the name of a test


class Exceptions:
    """What does not hold for an MPI or hosts: what is left out, and tests that may differ."""

    def __init__(self, path="", names=""):
        rows = []
        if path:
            lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
            rows = [line.split(None, 3) for line in lines if line and not line.startswith("#")]
        self.rows = [row[1:] for row in rows if row[0] in ["all", *names.split(",")]]

    def fits(self, kind, name):
        """Why this file or test is an exception of that kind, if it is."""
        fitting = (why for k, p, why in self.rows if k == kind and fnmatch.fnmatchcase(name, p))
        return next(fitting, None)

    def patterns(self):
        """Those of tests, not of whole files, that are left out."""
        return [pattern for kind, pattern, _ in self.rows if kind == "left-out" and "." in pattern]


class Job:
    """What a job has written down."""

    def __init__(self, directory, ranks):
        self.files = json.loads((directory / "files").read_text(encoding="utf-8"))
        self.lines = [self._read(directory / str(rank)) for rank in range(ranks)]

    @staticmethod
    def _read(path):
        if not path.exists():
            return []
        # The last line may not be whole yet.
        whole = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in whole]

    def _left(self, lines):
        """How many files a rank has done with."""
        if lines and lines[-1] == ["over"]:
            return len(self.files)
        begun = [NAME.search(line[1])[0] for line in lines if line[0] == "begin"]
        return self.files.index(begun[-1]) if begun else 0

    def has_begun(self):
        return all(self.lines)

    def done(self):
        """The files that all ranks have done with; they run in this order."""
        return self.files[: min(map(self._left, self.lines))]

    def last(self):
        """The test that each rank was in."""
        tests = ([line[1] for line in lines if line[0] == "begin"] for lines in self.lines)
        return [found[-1] if found else "none" for found in tests]

    def outcomes(self):
        """(file, test, rank): outcome, why, seconds; of files that are done."""
        done = set(self.done())
        found = {}
        for rank, lines in enumerate(self.lines):
            for _, test, outcome, seconds, why in (line for line in lines if line[0] == "end"):
                file = NAME.search(test)[0]
                if file in done:
                    found[file, test, rank] = (outcome, why, seconds)
        return found


class Record:
    """The jobs of a run."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def begin(self, ranks, resume):
        if not resume:
            shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "ranks").write_text(str(ranks), encoding="utf-8")

    def directories(self):
        return sorted(self.path.glob("job.*"), key=lambda found: int(found.suffix[1:]))

    def jobs(self):
        ranks = int((self.path / "ranks").read_text(encoding="utf-8"))
        return [Job(directory, ranks) for directory in self.directories()]

    def add(self, files):
        directory = self.path / f"job.{len(self.directories())}"
        directory.mkdir()
        directory.chmod(0o777)
        (directory / "files").write_text(json.dumps(files), encoding="utf-8")
        return directory

    def done(self):
        return {file for job in self.jobs() for file in job.done()}

    def outcomes(self):
        return {key: outcome for job in self.jobs() for key, outcome in job.outcomes().items()}


def end(process):
    """Ends a job that has not ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_job(record, files, options, patterns):
    """Runs one until all files are done, or one takes too long or ends it; says which, and why."""
    directory = record.add(files)
    tests = pathlib.Path(options.tests)
    words = [HERE / "outcomes.py", directory, ",".join(patterns), tests / "runtests.py"]
    words += ["--no-builddir", "-i", f"^({'|'.join(files)})($|[.])"]
    done, since = 0, time.monotonic()
    with open(directory / "said", "w", encoding="utf-8") as said:
        process = subprocess.Popen(
            [*options.command, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        while process.poll() is None and time.monotonic() - since < options.budget:
            time.sleep(1)
            now = Job(directory, options.ranks).done()
            if len(now) > done:
                print(f"{', '.join(now[done:])}: {time.monotonic() - since:.0f} s", flush=True)
                done, since = len(now), time.monotonic()
        late = process.poll() is None
    finally:
        end(process)
    job = Job(directory, options.ranks)
    if len(job.done()) == len(files):
        return None
    ended = f"ends the job ({process.returncode})"
    why = f"takes longer than {options.budget} s" if late else ended
    tail = (directory / "said").read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    said = "\n".join([f"{why}, with ranks in {', '.join(job.last())}", *tail])
    return (files[len(job.done())] if job.has_begun() else None), said


def run(options):
    but = Exceptions(*options.but)
    record = Record(options.record)
    record.begin(options.ranks, options.resume)
    there = sorted(path.stem for path in pathlib.Path(options.tests).glob("test_*.py"))
    chosen = [file for file in there if re.search(options.files, file)]
    for file in chosen:
        if why := but.fits("left-out", file):
            print(f"{file} is left out: {why}")
    for _, pattern, why in (row for row in but.rows if row[1] in but.patterns()):
        print(f"{pattern} is left out: {why}")
    wanted = [file for file in chosen if not but.fits("left-out", file)]
    failed = []
    while files := [file for file in wanted if file not in record.done() and file not in failed]:
        if (stopped := run_job(record, files, options, but.patterns())) is None:
            continue
        file, why = stopped
        if not file:
            print(f"the job does not begin, and {why}")
            return 1
        print(f"{file} {why}", flush=True)
        failed.append(file)
    say(record, wanted)
    return 1 if failed else 0


def say(record, wanted):
    """How many tests came to what, and which files took longest."""
    found = {key: what for key, what in record.outcomes().items() if key[0] in wanted}
    counts, seconds = {}, {}
    for (file, _, rank), (outcome, _, took) in found.items():
        counts[outcome] = counts.get(outcome, 0) + 1
        if rank == 0:
            seconds[file] = seconds.get(file, 0) + took
    done = len(record.done() & set(wanted))
    slowest = sorted(seconds.items(), key=lambda item: -item[1])[:5]
    print(
        f"{done} of {len(wanted)} files, {sum(counts.values())} outcomes:",
        ", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items())),
        f"in {sum(seconds.values()):.0f} s, of which",
        ", ".join(f"{file} {took:.0f} s" for file, took in slowest),
    )


def compare(options):
    but = Exceptions(*options.but)
    one, other = Record(options.one).outcomes(), Record(options.other).outcomes()
    none = ("was not run", "", 0)
    different, excused, bad = 0, {}, 0
    files = {key[0] for key in one} ^ {key[0] for key in other}
    left_out = {file for file in files if but.fits("left-out", file)}
    if only := files - left_out:
        different += len(only)
        print(f"Only one of the two has run {', '.join(sorted(only))}")
    for key in sorted(one.keys() | other.keys()):
        here, there = one.get(key, none)[:2], other.get(key, none)[:2]
        file, test, rank = key
        if file in files or but.fits("left-out", test):
            continue
        if here[0] == there[0]:
            bad += here[0] in ("fails", "has an error")
        elif why := but.fits("differs", test):
            excused[why] = excused.get(why, 0) + 1
        else:
            different += 1
            print(f"{test}, rank {rank}: {here[0]} {here[1]!r}, there it {there[0]} {there[1]!r}")
    for why, count in excused.items():
        print(f"{count} outcomes may differ: {why}")
    print(f"{len(one)} outcomes and {len(other)}, {different} differ; {bad} are bad in both")
    return 0 if one and other and not different else 1


def main():
    top = argparse.ArgumentParser(description=__doc__)
    commands = top.add_subparsers(dest="what", required=True)
    for what, words in (("run", ["record"]), ("compare", ["one", "other"])):
        parser = commands.add_parser(what)
        for word in words:
            parser.add_argument(word)
        parser.add_argument("--but", nargs=2, default=())
        if what == "run":
            parser.add_argument("--tests", required=True)
            parser.add_argument("--ranks", type=int, required=True)
            parser.add_argument("--budget", type=int, default=300)
            parser.add_argument("--files", default="")
            parser.add_argument("--resume", action="store_true")
            parser.add_argument("command", nargs=argparse.REMAINDER)
    options = top.parse_args()
    return run(options) if options.what == "run" else compare(options)


sys.exit(main())
