"""Linear algebra: products are right with whatever parameters, and a wrong one is found."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from vshmem_lab import builds, paths, process, stats, tune
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.model import Case, Contender, Failed, Missing, Turn
from vshmem_lab.report import kernels
from vshmem_lab.report.knee import knees
from vshmem_lab.runners import algebra, algebra_programs
from vshmem_lab.runners.algebra_programs import (
    EDGES,
    Dgemm,
    Edges,
    KernelSizes,
    Level2,
    Library,
    Tuning,
)
from vshmem_lab.runners.job import Job
from vshmem_lab.runners.onekernel import container
from vshmem_lab.runners.scarce import Scarce
from vshmem_lab.suites import algebra as algebra_suite
from vshmem_lab.topology import pair

# The parameters of blocked.c: tiles that no size is a multiple of, and each kind of code.
VARIANTS = (
    (64, 2, 4, 4, 2, 0, 0),
    (36, 3, 1, 36, 1, 0, 6),
    (10, 1, 3, 5, 2, 0, 2),
    (48, 3, 4, 8, 4, 1, 0),
    (48, 2, 3, 1, 4, 0, 4),
    (64, 3, 8, 8, 8, 1, 0),
    (64, 2, 5, 4, 8, 0, 3),
)
# ROWS, COLUMNS and VW of unrolled.c.
UNROLLED = ((1, 1, 1), (2, 16, 1), (4, 32, 2), (8, 3, 4), (16, 4, 8))
SIZES = (1, 2, 37, 130)


def job(*options: str, library: str | Library, processes: int = 1) -> Job:
    """DGEMM on this kernel, by a library or the one of a path."""
    cpus = pair() if processes > 1 else pair()[:1]
    return Job(algebra.Native(cpus), Dgemm(as_library(library), options, processes))


def as_library(it: str | Library) -> Library:
    """The library of a path."""
    return it if callable(it) else lambda _: it


def turns(*sizes: int, what: str = "rate") -> list[Turn]:
    """A turn of each size."""
    one = Contender("it", "", (what,))
    return [Turn(Case("algebra", what, "native", (one,), sizes), one, size) for size in sizes]


def built(folder: Path, source: Path, *flags: str) -> str:
    """A library."""
    out = str(folder / "it.so")
    process.run(["cc", "-O3", "-std=gnu11", "-shared", "-fPIC", *flags, "-o", out, str(source)])
    return out


def tuned(folder: Path, routine: str, variant: tuple[int, ...]) -> str:
    """A library with these parameters."""
    made = tune.ROUTINES[routine]
    values = dict(zip(made.called, variant, strict=True))
    has = tune.flags()
    if tune.NEEDS[values["VW"]] not in has or (values.get("MA") and "fma" not in has):
        pytest.skip("This processor has no such vectors.")
    flags = [f"-D{name}={value}" for name, value in values.items()]
    return built(folder, Path(made.path), "-Wall", "-Wextra", "-Werror", *flags)


@pytest.mark.parametrize("variant", VARIANTS)
def test_products_are_right(variant: tuple[int, ...], tmp_path: Path) -> None:
    library = tuned(tmp_path, "gemm", variant)
    for transposed, edge in itertools.product(algebra.TRANSPOSED, ("0", "65536")):
        found = job("-t", transposed, library=library).measure(turns(*SIZES), 0.01)
        assert all(reading.value > 0 for reading in found)
        process.run([str(paths.programs() / "dgemm"), "-e", edge, "-t", transposed, library, "99"])


def level2(library: str | Library, routine: str) -> Job:
    """A routine of a matrix and vectors on this kernel."""
    return Job(algebra.Native(pair()[:1]), Level2(as_library(library), routine.lower()))


@pytest.mark.parametrize("variant", UNROLLED)
@pytest.mark.parametrize("routine", algebra.LEVEL2)
def test_matrices_and_vectors_are_right(
    routine: str, variant: tuple[int, ...], tmp_path: Path
) -> None:
    library = tuned(tmp_path, routine.lower(), variant)
    found = level2(library, routine).measure(turns(*SIZES), 0.01)
    assert all(reading.value > 0 for reading in found)


def test_vectors_may_have_gaps_and_go_backwards(tmp_path: Path) -> None:
    blas = ctypes.CDLL(tuned(tmp_path, "gemvn", (4, 3, 2)))
    rows, columns, random = 23, 11, np.random.default_rng(2)
    m, n = (ctypes.byref(ctypes.c_int(value)) for value in (rows, columns))
    two, minus, three = (ctypes.byref(ctypes.c_int(value)) for value in (2, -1, 3))
    half, quarter = (ctypes.byref(ctypes.c_double(value)) for value in (0.5, 0.25))
    matrix = np.asfortranarray(random.random((rows, columns)))
    long, short = random.random(rows * 3), random.random(columns * 2)
    x, y = short[::2], long[rows - 1 :: -1]  # as BLAS reads increments of 2 and -1
    a, at_x, at_y = (one.ctypes.data_as(ctypes.c_void_p) for one in (matrix, short, long))
    wanted = 0.5 * matrix @ x + 0.25 * y
    blas.dgemv_(b"N", m, n, half, a, m, at_x, two, quarter, at_y, minus)
    assert np.allclose(y, wanted, atol=1e-12)
    wanted = 0.25 * matrix.T @ long[::3] + 0.5 * x
    blas.dgemv_(b"T", m, n, quarter, a, m, at_y, three, half, at_x, two)
    assert np.allclose(x, wanted, atol=1e-12)
    wanted = matrix + 0.5 * np.outer(y, x)
    blas.dger_(m, n, half, at_y, minus, at_x, two, a, m)
    assert np.allclose(matrix, wanted, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["naive", "untuned", "reference BLAS", "OpenBLAS", "BLIS", "ATLAS"]
)
def test_libraries_multiply(name: str) -> None:
    try:
        library = algebra_programs.library(name, None)
    except Missing as reason:
        pytest.skip(str(reason))
    readings = job(library=library).measure(turns(*SIZES), 0.01)
    if name in algebra.COMPLETE:
        for routine in algebra.LEVEL2:
            readings += level2(library, routine).measure(turns(*SIZES), 0.01)
    assert all(reading.value > 0 for reading in readings)


@pytest.mark.parametrize("wrong", ["1e-7", "NAN"])
def test_a_wrong_product_is_found(wrong: str, tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    naive = (tune.SOURCE / "naive.c").read_text()
    source.write_text(
        f"#include <math.h>\n{naive}".replace("*alpha * sum", f"({wrong}) * (i == j) + sum")
    )
    with pytest.raises(Failed, match="the product of 37 rows is wrong"):
        job(library=built(tmp_path, source)).measure(turns(37), 0.01)


@pytest.mark.parametrize("routine", algebra.LEVEL2)
def test_a_wrong_matrix_or_vector_is_found(routine: str, tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    text = Path(tune.ROUTINES["ger"].path).read_text()
    # The first element of each vector is forgotten.
    source.write_text(text.replace("found[i] = times", "found[i] = (i > 0) * times"))
    assert source.read_text() != text
    library = built(tmp_path, source)
    with pytest.raises(Failed, match=f"{routine[:4].lower()}.* of 37 rows is wrong"):
        level2(library, routine).measure(turns(37), 0.01)


def test_operands_may_be_in_vshmem() -> None:
    library = algebra_programs.library("untuned", None)
    with builds.Pool(f"lab-{os.getpid()}-algebra", builds.current()) as pool:
        place = algebra.Native(pair()[:1], pool.environment())
        (found,) = Job(place, Dgemm(library, ("-s",))).measure(turns(150), 0.01)
    assert found.value > 0


def test_two_begin_together_and_their_mean_counts() -> None:
    library = algebra_programs.library("untuned", None)
    readings = job(library=library, processes=2).measure(turns(50, 100), 0.01)
    assert len(readings) == 2 and all(reading.value > 0 for reading in readings)
    twice = Dgemm(library, (), 2).figures("rate 50 10\nvm1: rate 50 20\nrate 60 1\n")
    assert twice == {("rate", 50): 15}


def test_what_a_process_needs_is_told() -> None:
    library = algebra_programs.library("untuned", None)
    played = job(library=library)
    (rate,) = played.measure(turns(300), 0.01)
    (resident,) = played.measure(turns(300, what="resident"), 0.01)
    operands = 3 * 300 * 300 * 8
    assert rate.value > 0 and operands < resident.value < operands + (64 << 20)


def test_all_edges_are_swept_and_the_best_is_chosen() -> None:
    edges = Edges(algebra_programs.library("untuned", None))
    played = Job(algebra.Native(pair()[:1]), edges)
    (found,) = played.measure(turns(0, what="chosen"), 0.01)
    assert found.value in EDGES[1:]
    said = [f"rate {edge} {100 + (edge == EDGES[3])}" for edge in EDGES]
    assert edges.figures("\n".join(said))["chosen", 0] == EDGES[3]
    with pytest.raises(Failed, match="did not measure all edges"):
        edges.figures("\n".join(said[1:]))


def test_sizes_of_a_kernel() -> None:
    said = "01000000-01ffffff : Kernel code\n  02000000-020003ff : Kernel data\n"
    assert KernelSizes().figures(said) == {("code", 0): 1 << 24, ("data", 0): 1024}
    hidden = "00000000-00000000 : Kernel code\n00000000-00000000 : Kernel data\n"
    assert KernelSizes().figures(hidden) == {}


def test_memory_that_can_not_be_scarce_is_missing() -> None:
    class Place:
        """Where a program says this."""

        def __init__(self, said: str) -> None:
            self._said = said

        def said(self, program: Dgemm, argv: list[str], before: Sequence[str]) -> str:
            """Fails."""
            raise Failed(f"{before[0]} failed with status 77: {self._said}")

    library = algebra_programs.library("untuned", None)
    for said, kind, told in (
        ("missing: there is no swap", Missing, "scarce here: there is no swap.$"),
        ("killed", Failed, "status 77: killed$"),
    ):
        with pytest.raises(Failed, match=told) as failed:
            Job(Scarce(Place(said), 1 << 20), Dgemm(library)).measure(turns(50), 0.01)
        assert type(failed.value) is kind


SCARCE = str(paths.LAB / "src" / "algebra" / "scarce.sh")


def test_where_memory_has_no_limit_the_reason_is_told(tmp_path: Path) -> None:
    """As root, by what a system without swap, and a group that may not limit memory, have."""
    script = Path(SCARCE).read_text().replace("/proc/swaps", f"{tmp_path}/swaps")
    script = script.replace("/sys/fs/cgroup", f"{tmp_path}/cgroup").replace("$(id -u)", "0")
    (tmp_path / "it.sh").write_text(script)
    run = ["sh", str(tmp_path / "it.sh"), "4096", "true"]
    (tmp_path / "cgroup" / "cgroup.subtree_control").mkdir(parents=True)
    (tmp_path / "cgroup" / "cgroup.controllers").write_text("cpu memory\n")
    for swaps, told in (("", "has no swap"), ("/swap file 1 0 -2\n", "may not limit memory")):
        (tmp_path / "swaps").write_text(f"Filename\n{swaps}")
        said = subprocess.run(run, capture_output=True, text=True)
        assert (said.returncode, told in said.stderr) == (77, True), said.stderr


def test_two_in_one_place_are_limited_together_and_else_apart(monkeypatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(algebra, "run", lambda line, *_: ran.append(line) or "")
    monkeypatch.setattr(algebra, "finish", lambda *_: "")

    @contextlib.contextmanager
    def started(line: list[str], *_extra):
        ran.append(line)
        yield line

    monkeypatch.setattr(algebra, "started", started)
    program = Dgemm(algebra_programs.library("untuned", None), processes=2)
    Scarce(algebra.Native((0, 1)), 8).said(program, ["it"])
    ((*_, limit, shell, _, both, _, name),) = ran
    assert (limit, shell, name, both.count('"$@"')) == ("8", "sh", "it", 2)
    ran.clear()
    Scarce(algebra.Native((0, 1), enclose=container), 4).said(program, ["it"])
    assert len(ran) == 2 and all(SCARCE in line and "unshare" in line for line in ran)
    assert all(line.index(SCARCE) < line.index("unshare") for line in ran)


def test_in_machines_the_limit_is_of_each_machine() -> None:
    class Machines:
        names = ("vm0", "vm1")

        def do(self, *words: str, what: str, within: float) -> str:
            """Says what is run."""
            return " ".join(words)

    program = Dgemm(algebra_programs.library("untuned", None), processes=2)
    one = Scarce(algebra.InMachines(Machines(), 2), 16).said(program, ["it"])
    assert one.startswith("exec -u root vm0 --") and one.count(SCARCE) == 1
    assert one.index(SCARCE) < one.index("wait")
    two = Scarce(algebra.InMachines(Machines(), 2, on_vshmem=True), 8).said(program, ["it"])
    assert two == f"run -u root -n 2 -- {SCARCE} 8 it"


def test_machines_of_little_memory_have_it_beside_their_disk(monkeypatch) -> None:
    asked, swapped = [], []
    monkeypatch.setattr(algebra.kvm, "needed", lambda: None)
    monkeypatch.setattr(
        algebra, "swap_in", lambda machines, size, whole: swapped.append((machines, size, whole))
    )
    found = algebra.runners(lambda *shape: asked.append(shape) or "them", (0, 1), dict, dict)
    for place in (*algebra.IN_KVM, *algebra.TOGETHER_IN_KVM):
        found[f"algebra OpenBLAS, {place}"]()
    disk = algebra.LARGE_SWAP
    sizes = [(count, cpus, kind.accel, kind.memory) for count, cpus, kind in asked]
    assert sizes == [
        (1, 1, "kvm", 756),
        (1, 1, "kvm", 756),
        (1, 1, "kvm", 256 + disk),
        (1, 2, "kvm", 512 + disk),
        (2, 1, "kvm", 256 + disk),
    ]
    assert swapped == [("them", disk, True)] * 3


def test_each_size_has_the_papers_runs() -> None:
    runs: dict[str, set[tuple[int, int]]] = {}
    for case in algebra_suite.CASES:
        runs.setdefault(case.name.split(":")[0], set()).add((case.runs, case.least))
    for figure in ("figure 6", "figure 7", "figure 8", *(f"figure 1{n}" for n in range(7))):
        assert runs[figure] == {(5, 5)}, figure
    for figure in ("figure 3", "figure 4", "table 4, figure 5"):
        assert runs[figure] == {(20, 20)}, figure
    places = {case.environment for case in algebra_suite.CASES if "two DGEMMs" in case.name}
    scarce = {case.environment for case in algebra_suite.CASES if "time, memory sc" in case.name}
    assert places == scarce == {"native", "guest-guest", "guest-guest, KVM"}


def test_the_kernel_that_openblas_took_is_told(tmp_path: Path) -> None:
    source = tmp_path / "named.c"
    naive = (tune.SOURCE / "naive.c").read_text()
    source.write_text(f'{naive}\nchar *openblas_get_corename(void) {{ return "Prescott"; }}\n')
    named, unnamed = built(tmp_path, source), algebra_programs.library("naive", None)
    (reading,) = job(library=named).measure(turns(50), 0.01)
    assert reading.placement.endswith("OpenBLAS's kernel for Prescott")
    assert "kernel" not in job(library=unnamed).measure(turns(50), 0.01)[0].placement
    line = Line("OpenBLAS", 50, False, False, "", "", placement=reading.placement)
    table = Table("algebra", "figure 6", "native", "Mflop/s", "", [line], 1, 0, 0, None)
    assert kernels.kernels(Run("a", {}, [table])) == ["native: that for Prescott."]
    assert kernels.of("on core 0") == ""


def test_nobody_chooses_openblas_kernel_but_itself(monkeypatch) -> None:
    try:
        library = algebra_programs.library("OpenBLAS", None)
    except Missing as reason:
        pytest.skip(str(reason))
    (own,) = job(library=library).measure(turns(50), 0.01)
    for choice in ("Haswell", "Prescott"):
        monkeypatch.setenv("OPENBLAS_CORETYPE", choice)
        (reading,) = job(library=library).measure(turns(50), 0.01)
        assert reading.placement == own.placement


def test_the_knee_is_found_and_explained() -> None:
    def table(name: str, unit: str, plentiful: list[float], scarce: list[float]) -> Table:
        lines = [
            Line(who, n * 100, False, False, "", "", summary=stats.summarize([value]))
            for who, values in ((algebra_suite.PLENTIFUL, plentiful), ("16 MiB of memory", scarce))
            for n, value in enumerate(values, 7)
        ]
        return Table("algebra", name, "a machine", unit, "", lines, 1, 0, 0, None)

    swapped = table(algebra_suite.SWAPPED, "B", [0, 0, 0], [0, 2 << 20, 8 << 20])
    rates = table(algebra_suite.SCARCE, "Mflop/s", [100, 100, 100], [80, 95, 70])
    (said,) = knees(Run("a", {}, [rates, swapped]))
    assert "from 900 rows, whose matrices have 18.5 MiB, at 70% of the rate" in said
    assert (
        "swapped from 800 rows, whose matrices have 14.6 MiB: 2 MiB of it (medians of 1)." in said
    )
    fast = table(algebra_suite.SCARCE, "Mflop/s", [100, 100, 100], [99, 98, 97])
    (said,) = knees(Run("a", {}, [fast, swapped]))
    assert "nowhere, up to 900 rows" in said


def test_without_kernel_tuner_it_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Missing, match="kernel_tuner is not installed"):
        Tuning(algebra.Native(pair()[:1]))


@pytest.mark.skipif(not importlib.util.find_spec("kernel_tuner"), reason="it is not installed")
def test_the_tuner_chooses_of_its_space() -> None:
    tuning = Tuning(algebra.Native(pair()[:1]))
    said = algebra.Native(pair()[:1]).said(tuning, tuning.argv((), 0.01))
    found = tuning.figures(said)
    for name, routine in tune.ROUTINES.items():
        for parameter, values in routine.small.items():
            assert found[f"{name}-{routine.called[parameter]}", 0] in values
        assert found[f"{name}-tried", 0] == math.prod(map(len, routine.small.values()))
        assert found[f"{name}-rate", 0] > 0
    assert job(library=tuning.library("gemm", 0.01)).measure(turns(100), 0.01)[0].value > 0
    for routine in algebra.LEVEL2:
        library = tuning.library(routine.lower(), 0.01)
        assert level2(library, routine).measure(turns(100), 0.01)[0].value > 0


@pytest.mark.skipif(not importlib.util.find_spec("kernel_tuner"), reason="it is not installed")
@pytest.mark.parametrize(("seconds", "space"), [(0.01, "small"), (0.2, "whole")])
def test_what_is_tuned_was_tuned_though_the_tuner_is_no_case_of_the_run(
    seconds: float, space: str, monkeypatch
) -> None:
    searches = []

    class Place:
        def said(self, _: Tuning, argv: list[str]) -> str:
            """What a tuner says that has chosen the least of everything."""
            searches.append(argv[argv.index("vshmem_lab.tune") + 1])
            chosen = (
                f"{name}-{called} 0 {routine.small[parameter][0]}"
                for name, routine in tune.ROUTINES.items()
                for parameter, called in routine.called.items()
            )
            return "\n".join(chosen)

    monkeypatch.setattr(Tuning, "compile_all", lambda *_: None)
    tuning = Tuning(Place())
    of = algebra_programs.library("tuned", lambda: tuning)
    assert searches == [], "a place is asked for nothing before its turn"
    argv = Dgemm(of).argv(turns(100), seconds)
    assert Dgemm(of).argv(turns(100), seconds) == argv
    assert searches == [space]


def test_a_processor_is_asked_for_what_it_has_only() -> None:
    gemm, ger = tune.ROUTINES["gemm"], tune.ROUTINES["ger"]
    assert gemm.space("whole", {"sse2"})["VW"] == [1, 2] == ger.space("whole", {"sse2"})["VW"]
    assert gemm.space("whole", {"sse2"})["MA"] == [0]
    assert gemm.space("whole", {"sse2", "avx2", "fma"})["VW"] == [1, 2, 4]
