"""Runs mpi4py's own tests in a rank, and writes down what comes of each.

outcomes.py DIRECTORY PATTERNS PROGRAM ARGUMENT...

PROGRAM is the tests' runtests.py. DIRECTORY is one that all ranks may write to. It gets a file
RANK, in which each line is a list in JSON: ["begin", TEST], ["end", TEST, OUTCOME, SECONDS, WHY],
and at the end ["over"]. The tests' temporary files are there, too, and open to all: some are opened
by all ranks. Tests that fit one of PATTERNS, with commas between them, are left out.
"""

import fnmatch
import json
import os
import runpy
import sys
import tempfile
import time
import unittest

# The worst of what comes of a test's parts is what comes of it.
OUTCOMES = ("passes", "is skipped", "fails", "has an error")


class Result(unittest.TextTestResult):
    """Writes down what comes of each test, beside what it always does."""

    lines = None  # the file
    over = False

    def _write(self, *line):
        self.lines.write(json.dumps(line) + "\n")

    def _comes(self, outcome, why=""):
        if OUTCOMES.index(outcome) > OUTCOMES.index(self.outcome):
            self.outcome, self.why = outcome, str(why)

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.why, self.begun = OUTCOMES[0], "", time.monotonic()
        self._write("begin", test.id())

    def stopTest(self, test):
        seconds = round(time.monotonic() - self.begun, 3)
        self._write("end", test.id(), self.outcome, seconds, self.why)
        super().stopTest(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._comes("is skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._comes("fails", err[1])

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._comes("fails", "it was expected to")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self._comes("fails", err[1])

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self._comes("has an error", err[1])
        else:  # what sets up a class or a file
            self._write("end", test.id(), "has an error", 0, str(err[1]))

    def stopTestRun(self):
        super().stopTestRun()
        self._write("over")
        Result.over = True


def leave_out(patterns):
    """Has unittest not find tests that fit one of these."""
    names_of = unittest.TestLoader.getTestCaseNames

    def names(self, case):
        prefix = f"{case.__module__}.{case.__qualname__}."
        return [
            name
            for name in names_of(self, case)
            if not any(fnmatch.fnmatchcase(prefix + name, pattern) for pattern in patterns)
        ]

    unittest.TestLoader.getTestCaseNames = names


def share_temporary_files(directory):
    """Has tests make their temporary files there, for all users: machines have different ones."""
    make = tempfile.mkstemp

    def make_for_all(*words, **options):
        descriptor, name = make(*words, **options)
        os.fchmod(descriptor, 0o666)
        return descriptor, name

    os.umask(0)
    tempfile.tempdir = directory
    tempfile.mkstemp = make_for_all


def main(directory, patterns, program, *words):
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
    leave_out([pattern for pattern in patterns.split(",") if pattern])
    share_temporary_files(directory)
    unittest.runner.TextTestRunner.resultclass = Result
    sys.argv = [program, *words]
    sys.path.insert(0, os.path.dirname(program))
    sys.dont_write_bytecode = True
    with open(os.path.join(directory, rank), "a", buffering=1, encoding="utf-8") as Result.lines:
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit:
            # A rank that says that a test has failed would end the others' job.
            if not Result.over:
                raise


main(*sys.argv[1:])
