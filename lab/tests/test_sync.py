"""The papers' Sync: both sides really take turns, and how far times vary is judged rightly."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fakes import OURS, THEIRS, Fake, Silent, about, all_fake, case
from vshmem_lab import analysis, builds, paths, stats
from vshmem_lab.driver import Driver
from vshmem_lab.model import Contender, Turn
from vshmem_lab.process import started
from vshmem_lab.report import variance
from vshmem_lab.report.grid import as_text, grid, text_of
from vshmem_lab.runners import lines, onekernel
from vshmem_lab.store import Store
from vshmem_lab.suites import sharing, sync

ALL = ("raw", "0", "bakery", "0", "bakery", "4", "bakery", "1000", "swap", "0", "swap", "1000")
RUNS = 12


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    paths.build_programs()


def sides(words: tuple[str, ...], extra: dict[str, str] | None = None, count: int = 2) -> list:
    """So many processes of busypong; what each has printed, and its status."""
    argv = [str(paths.programs() / "busypong"), "-k", f"{0x53000000 | os.getpid():#x}"]
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(started([*argv, *words], extra)) for _ in range(count)]
        said = [one.communicate(timeout=120) for one in both]
    return [(*out, one.returncode) for out, one in zip(said, both, strict=True)]


def played(extra: dict[str, str] | None = None) -> None:
    """Both sides take all turns, one of them tells how long they took, and the segment is gone."""
    found = sides(("-n", "300", *ALL), extra)
    assert [status for *_, status in found] == [0, 0], found
    told = "".join(out for out, *_ in found)
    assert [(m, str(s)) for m, s, _ in lines.pongs(told)] == list(
        zip(ALL[::2], ALL[1::2], strict=True)
    )
    assert all(reading.value > 0 for *_, reading in lines.pongs(told))


def test_turns_are_taken_on_the_kernels_segment() -> None:
    played()
    listed = Path("/proc/sysvipc/shm").read_text()
    assert str(0x53000000 | os.getpid()) not in listed


def test_turns_are_taken_on_a_pools_segment() -> None:
    with builds.Pool(f"lab-{os.getpid()}-sync", builds.current()) as pool:
        played(pool.environment())


@pytest.mark.parametrize("method", ["bakery", "swap"])
def test_a_side_that_gets_the_turn_out_of_order_is_noticed(method: str, tmp_path: Path) -> None:
    """With a P that lets in whoever comes, turns are not taken, and a run fails."""
    source = (paths.LAB / "src" / "busypong.c").read_text()
    p = re.compile(rf"static void {method}_p\(struct counter \*c, int me\) {{.*?\n}}\n", re.DOTALL)
    broken, count = p.subn(
        f"static void {method}_p(struct counter *c, int me) {{ (void)c, (void)me; }}\n", source
    )
    assert count == 1
    (tmp_path / "busypong.c").write_text(broken)
    program = tmp_path / "busypong"
    src = paths.LAB / "src"
    sources = [tmp_path / "busypong.c", src / "support.c"]
    subprocess.run(["cc", "-O2", "-w", f"-I{src}", "-o", program, *sources], check=True)
    argv = [str(program), "-k", f"{0x54000000 | os.getpid():#x}", "-n", "100000", method, "8"]
    with started(argv) as one, started(argv) as other:
        while one.poll() is None and other.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(0.05)
        first = one if one.poll() is not None else other
        assert first.returncode == 1 and "has not had it" in first.communicate(timeout=9)[0]


def test_what_is_no_size_or_method_is_refused() -> None:
    wrong = ((), ("bakery",), ("semaphore", "8"), ("swap", "9999999"), ("-n", "0", "raw", "0"))
    for words in wrong:
        ((said, _, status),) = sides(words, count=1)
        assert status == 2 and "METHOD SIZE" in said


def test_a_run_has_the_papers_turns_and_sizes() -> None:
    natively = next(one for one in sync.CASES if one.environment == "native")
    ours = next(one for one in natively.contenders if one.vshmem)
    turns = [Turn(natively, ours, size) for size in natively.sizes_of(ours)]
    argv = onekernel.pingpong(turns, 0.2)
    assert argv[0].endswith("busypong") and argv[argv.index("-n") + 1] == "100000"
    assert argv[-24:-20] == ["bakery", "0", "bakery", "4"] and argv[-1] == "1000"
    tcp = next(one for one in natively.contenders if one.name == "TCP")
    assert natively.sizes_of(tcp)[0] == 100


def test_the_papers_figures_of_sync_stand_beside_no_system_call() -> None:
    """Paper 000's and 004's Sync waits busily; the kernel's semop is something else."""
    for one in sharing.CASES:
        named = {key if isinstance(key, str) else key[0] for key in one.papers}
        assert named <= {"TCP", "UDP"}, one.label
    for one in sync.CASES:
        where = {key if isinstance(key, str) else key[0] for key in one.papers}
        assert not where or {"Raw"} < where
        assert all("semaphore" not in word for x in one.contenders for word in x.words)


def test_variances_are_told_apart_and_those_alike_are_not() -> None:
    random = np.random.default_rng(1)
    real, alike, outlying = 0, 0, 0
    for _ in range(200):
        calm, same, wild = (random.normal(100, deviation, 25) for deviation in (1, 1, 3))
        # Times have outliers: samples of one distribution, which the F-test calls different.
        tails = [100 + random.standard_t(3, 25) for _ in range(2)]
        real += stats.compare_spread(calm, wild).real
        alike += stats.compare_spread(calm, same).real
        outlying += stats.compare_spread(*tails).real
    assert real > 190 and alike <= 6 and outlying <= 6
    found = stats.compare_spread([1, 2, 3], [2, 4, 6])
    assert found.ratio == pytest.approx(4) and not found.known


def noisy(share: float):
    """A value that is 100, and so much more or less."""
    draw = np.random.default_rng(int(share * 1000))
    return Fake(alter=lambda *_: 100 * (1 + share * float(draw.normal())))


def run(folder: Path, ours: float, theirs: float, **rest) -> analysis.Run:
    """A run whose contenders vary so much."""
    played = case(OURS, THEIRS, spread=True, **rest)
    kept = Store.create(folder, about([played], RUNS))
    runners = all_fake(ours=noisy(ours), theirs=noisy(theirs))
    Driver(runners, kept, RUNS, 0.1, Silent()).run([played])
    return analysis.load(folder)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (0.001, 0.02, "so in 1 of 1 comparisons"),
        (0.02, 0.001, "so in 0 of 1 comparisons, the contrary in 1"),
        (0.01, 0.0101, "so in 0 of 1 comparisons, no difference beyond chance in 1"),
    ],
)
def test_the_papers_finding_is_counted(
    ours: float, theirs: float, said: str, tmp_path: Path
) -> None:
    found = run(tmp_path / "a", ours, theirs)
    assert variance.heading(found) == f"{variance.CLAIM}: {said}"
    assert f"ping (native): Vshmem against kernel: {said}" in text_of(found)


def test_mean_deviation_and_variance_stand_beside_the_median(tmp_path: Path) -> None:
    found = run(tmp_path / "a", 0.001, 0.02, sizes=(0, 8), counts="bytes")
    shown = grid(found.tables[0])
    assert {"median", "mean", "std. dev.", "variance", "varies"} <= set(shown.head)
    line = found.tables[0].lines[2].summary
    row = dict(zip(shown.head, shown.rows[2], strict=True))
    assert row["size"] == "0 bytes"
    assert row["variance"] == f"{line.deviation**2 / 1e6:.3g} µs²"
    assert variance.CLAIM not in text_of(plain(tmp_path / "b"))


def plain(folder: Path) -> analysis.Run:
    """A run of a case whose variances are not asked for."""
    kept = Store.create(folder, about([case()], RUNS))
    Driver(all_fake(), kept, RUNS, 0.1, Silent()).run([case()])
    found = analysis.load(folder)
    assert "variance" not in as_text(grid(found.tables[0]))
    return found


def test_a_contender_may_lack_the_smallest_sizes(tmp_path: Path) -> None:
    large = Contender("large", "theirs", ("l",), least=8)
    both = case(OURS, large, sizes=(0, 8, 64), counts="bytes")
    kept = Store.create(tmp_path / "a", about([both], 2))
    Driver(all_fake(), kept, 2, 0.1, Silent()).run([both])
    (table,) = analysis.load(tmp_path / "a").tables
    assert [(x.contender, x.size) for x in table.lines if not x.vshmem] == [
        ("large", 8),
        ("large", 64),
    ]
