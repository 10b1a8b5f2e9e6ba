"""The suite `hypervisors`: pages are what they are said to be, features are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from vshmem_lab import analysis, paths, stats
from vshmem_lab.analysis import Line, Run, Table
from vshmem_lab.features import libvirt, qemu, table, words, xen
from vshmem_lab.model import Failed, Missing
from vshmem_lab.process import run
from vshmem_lab.report import hypervisors
from vshmem_lab.report.grid import as_text
from vshmem_lab.report.model import EMULATED
from vshmem_lab.runners import environments
from vshmem_lab.runners.podman import Podman

# Touches 64 MiB of malloc's, and prints how many KiB of the process are in huge pages.
TOUCH = """
import ctypes
c = ctypes.CDLL(None)
c.calloc.restype = ctypes.c_void_p
ctypes.memset(c.calloc(64 << 20, 1), 1, 64 << 20)
lines = open("/proc/self/smaps_rollup").read().splitlines()
print(sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")))
"""


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    paths.build_programs()


def huge_pages_of(pages: str) -> int:
    argv = environments.paged(pages, [sys.executable, "-c", TOUCH])
    return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def test_small_pages_are_small_and_huge_ones_huge() -> None:
    assert huge_pages_of(environments.SMALL) == 0
    if words.transparent() == "never":
        pytest.skip("the kernel gives no transparent huge pages")
    assert huge_pages_of(environments.HUGE) > 0


@pytest.mark.parametrize(("pages", "what"), [("huge pages", "never"), ("reserved huge pages", "")])
def test_pages_that_there_are_not_are_missing(pages: str, what: str, monkeypatch) -> None:
    monkeypatch.setattr(words, "transparent", lambda: what)
    monkeypatch.setattr(environments, "free", lambda: 0)
    with pytest.raises(Missing, match="huge pages"):
        environments.check(pages)
    environments.check("small pages")


def test_a_machine_that_has_small_pages_says_so(tmp_path: Path, monkeypatch) -> None:
    rollup = tmp_path / "smaps_rollup"
    rollup.write_text("0-1 r [rollup]\nAnonymous:  1000 kB\nAnonHugePages:  880 kB\n")
    monkeypatch.setattr(environments, "Path", lambda _: rollup)
    assert environments.backing(1) == ", 88% of its memory in huge pages"
    rollup.unlink()
    assert environments.backing(1) == ""


def test_qemu_is_asked() -> None:
    try:
        found = qemu.column("tcg")
    except Missing:
        pytest.skip("there is no QEMU")
    assert set(found) == set(words.ROWS)
    assert int(found[words.CPUS]) >= 255
    assert int(found[words.MODELS]) > 50
    assert "TiB" in found[words.MEMORY] or "PiB" in found[words.MEMORY]
    assert "ivshmem-doorbell" in found[words.SHARED]
    assert "post-copy" in found[words.MIGRATION]
    assert (found[words.CLOCK], found[words.MEANS]) == ("no", "by translation")


def test_a_qemu_that_runs_no_machine_says_why(tmp_path: Path, monkeypatch) -> None:
    program = tmp_path / qemu.PROGRAM
    program.write_text(f"#!/bin/sh\necho '{qemu.PROGRAM}: no such accelerator' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    column = table._asked(lambda: qemu.column("tcg"))
    assert column == {words.MISSING: "QEMU runs no machine: no such accelerator"}


HOST = """<capabilities><host><cpu><pages size='4'/><pages size='2048'/></cpu><iommu support='no'/>
<migration_features><live/><uri_transports><uri_transport>tcp</uri_transport></uri_transports>
</migration_features><topology><cells><cell id='0'/><cell id='1'/></cells></topology></host>
<guest><arch name='x86_64'/><features><disksnapshot/><acpi/></features></guest></capabilities>"""
DOMAIN = """<domainCapabilities><vcpu max='255'/><cpu><mode name='custom'>
<model usable='yes'>Nehalem</model><model usable='no'>EPYC</model></mode></cpu><memoryBacking>
<enum name='sourceType'><value>memfd</value></enum></memoryBacking><devices><hostdev>
<enum name='subsysType'><value>pci</value></enum></hostdev></devices></domainCapabilities>"""


def test_what_libvirt_says() -> None:
    host, domain = ElementTree.fromstring(HOST), ElementTree.fromstring(DOMAIN)
    found = libvirt._said("Using library: libvirt 9.0.0\n", host, {"qemu": domain})
    assert found[words.VERSION] == "9.0.0"
    assert (found[words.CPUS], found[words.MODELS]) == ("255", "1")
    assert found[words.PASSTHROUGH] == "pci; no IOMMU here"
    assert found[words.HUGE] == "the host's of 4 KiB, 2 MiB"
    assert found[words.NUMA] == "nodes here: 2"
    assert (found[words.MIGRATION], found[words.SNAPSHOTS]) == ("by tcp", "disksnapshot")


INFO = """xen_version            : 4.17.5
nr_nodes               : 1
total_memory           : 2559
virt_caps              : pv hvm hap shadow gnttab-v1 gnttab-v2
xen_caps               : xen-3.0-x86_64 hvm-3.0-x86_32 hvm-3.0-x86_64
"""


def test_what_xen_says() -> None:
    found = xen.said(INFO, "xl commands\n migrate    Migrate\n save   Save\n pci-attach   Attach\n")
    assert (found[words.VERSION], found[words.GUESTS]) == ("4.17.5", "x86_32, x86_64")
    assert found[words.PASSTHROUGH] == "xl pci-attach; no IOMMU here"
    assert found[words.SHARED] == "gnttab-v1, gnttab-v2"
    assert (found[words.MIGRATION], found[words.SNAPSHOTS]) == ("xl migrate", "xl save")


def test_nothing_is_left_of_containers() -> None:
    try:
        with Podman() as podman:
            folder = Path(podman._folder)
            argv = podman.enclose(["sh", "-c", "echo $HIDDEN; ls -d /proc/[0-9]*"])
            said = subprocess.run(
                argv, env={"HIDDEN": "passed"}, capture_output=True, text=True, check=True
            ).stdout.split()
            # Variables reach it, and it sees its own processes alone.
            assert said[0] == "passed"
            assert len(said) <= 3
            with pytest.raises(Failed, match="status 3"):
                run(podman.enclose(["sh", "-c", "exit 3"]))
    except Missing as missing:
        pytest.skip(str(missing))
    assert not folder.exists()
    assert str(folder) not in Path("/proc/mounts").read_text()


def line(name: str, low: float, high: float, accelerator: str = "", count: int = 20) -> Line:
    summary = stats.Summary(count, (low + high) / 2, low, high)
    flags = {"vshmem": False, "floor": False, "lacks": "", "paper": ""}
    return Line(name, 0, **flags, summary=summary, accelerator=accelerator)


def case(name: str, unit: str, *lines: Line, environment: str = "large problems") -> Table:
    return Table("hypervisors", name, environment, unit, "", list(lines), 20, 0, 0, None)


def ranks(*tables: Table) -> list[list[str]]:
    run = Run("run", {"features": {}}, list(tables))
    return [row for grid in hypervisors.supplement(run)[:-1] for row in (grid.head, *grid.rows)]


def test_ranks_of_what_is_better_and_of_what_is_the_same() -> None:
    found = ranks(
        case("HPL", "Mflop/s", line("a", 10, 11), line("b", 20, 21), line("c", 20.5, 22)),
        case("ping-pong latency", "ns", line("a", 10, 11), line("b", 20, 21), line("c", 5, 6)),
    )
    assert found[0] == ["benchmark", "a", "b", "c"]
    assert ["Linpack", "3", "1", "1"] in found
    assert ["latency", "2", "3", "1"] in found
    assert ["total of these", "-", "-", "-"] in found


def test_what_is_better_in_half_of_the_cases_is_not_ahead() -> None:
    one = case("FFT, MPI", "Mflop/s", line("a", 10, 11), line("b", 20, 21))
    other = case("FFT, one rank", "Mflop/s", line("a", 10, 21), line("b", 20, 21))
    assert ["FFT", "1", "1"] in ranks(one, other)
    assert ["FFT", "2", "1"] in ranks(one, one, other)


def test_emulated_environments_are_ranked_by_themselves() -> None:
    one = case("HPL", "Mflop/s", line("native", 90, 91), line("b", 80, 81))
    small = [line("native", 9, 9), line("x", 20, 21, "tcg"), line("y", 5, 6, "tcg")]
    other = case("HPL", "Mflop/s", *small, environment="small problems")
    run = Run("run", {"features": {}}, [one, other])
    real, emulated, _ = hypervisors.supplement(run)
    assert (real.head[1:], emulated.head[1:]) == (["native", "b"], ["x", "y"])
    assert EMULATED in emulated.notes
    assert EMULATED not in real.notes


def test_too_few_repetitions_have_no_ranks() -> None:
    lines = [line("a", 1, 2, count=7), line("b", 3, 4, count=7)]
    assert ranks(case("HPL", "Mflop/s", *lines)) == []


def test_features_are_wrapped_and_what_is_missing_says_why() -> None:
    columns = {"Here": {words.VERSION: "word " * 30}, "There": {words.MISSING: "it is not."}}
    ours, paper = hypervisors.features(columns)
    assert max(len(text) for text in as_text(ours).splitlines()[:-2]) < 100
    assert "There is missing: it is not." in ours.notes
    assert "128" in as_text(paper)


def test_lines_are_compared_with_the_base_of_their_kind() -> None:
    lines = [line("native", 1, 2), line("container", 1, 2), line("tcg", 5, 6, "tcg")]
    lines += [line("tcg, huge", 5, 6, "tcg")]
    lines[0].base = lines[2].base = True
    found = [analysis._base(lines, one).contender for one in lines]
    assert found == ["native", "native", "tcg", "tcg"]
    faster = stats.Difference(0.5, 0.4, 0.6, 0.0, 0.0)
    lines[1].against = faster
    # There is nothing of Vshmem that it could beat.
    assert not case("HPL", "ns", *lines).beats(lines[1])
