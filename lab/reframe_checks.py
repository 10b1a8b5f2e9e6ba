"""The lab's suites as ReFrame checks: `reframe -c lab/reframe_checks.py -r --performance-report`.

A check is a case with all of its contenders, since ReFrame can't have them take turns. Each
contender's median is a performance variable; a contender that is missing fails the check.
"""

import csv
import re
import shutil
import statistics
import sys
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable

LAB = Path(__file__).resolve().parent
sys.path.insert(0, str(LAB))

from vshmem_lab.suites.table import SUITES  # noqa: E402 (the path is set before)

KEYS = [(case.suite, case.name, case.environment) for cases in SUITES.values() for case in cases]


@rfm.simple_test
class VshmemCase(rfm.RunOnlyRegressionTest):
    """One case of the lab."""

    case = parameter(KEYS, fmt=lambda key: "_".join(key))
    repetitions = variable(int, value=12)
    seconds = variable(float, value=0.2)
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    time_limit = "1h"

    @run_after("init")
    def describe(self):
        """The suite and the environment are tags, to choose by: reframe -t sharing -t native."""
        suite, name, environment = self.case
        self.descr = f"{name} ({environment})"
        self.tags = {suite, environment}

    @run_after("setup")
    def command(self):
        """The lab measures it, by the samples' file."""
        suite, name, environment = self.case
        beside = LAB / "vshmem-lab"
        self.executable = str(beside) if beside.exists() else shutil.which("vshmem-lab")
        self.executable_opts = [
            *("run", suite, "--case", f"'={name}'", "--environment", f"'={environment}'"),
            *("--repetitions", str(self.repetitions), "--seconds", str(self.seconds)),
            *("--output", "run"),
        ]
        self.keep_files = ["run"]

    @sanity_function
    def everything_was_measured(self):
        """Every contender has values."""
        return sn.all(
            [
                sn.assert_found(r"^kept in ", self.stdout),
                sn.assert_not_found(r"missing: ", self.stdout),
            ]
        )

    @run_before("performance")
    def contenders(self):
        """A performance variable for each contender and size."""
        with (Path(self.stagedir) / "run" / "samples.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["value"]]
        found = {}
        for row in rows:
            name = re.sub(r"\W+", "_", f"{row['contender']} {row['size']}").removesuffix("_0")
            found.setdefault((name, row["unit"]), []).append(float(row["value"]))
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(statistics.median(values)), unit)
            for (name, unit), values in found.items()
        }
