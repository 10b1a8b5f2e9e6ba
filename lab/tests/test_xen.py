"""Xen for the lab. A script stands for tests/xen/run.sh; its dom0 and its domain are this host."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from vshmem_lab import paths
from vshmem_lab.environments import OPENMP, SMALL, XEN, hpcc, named
from vshmem_lab.features import table, words
from vshmem_lab.model import Case, Contender, Failed, Missing, Turn
from vshmem_lab.runners import environments, xen, xen_domain, xen_host, xen_script
from vshmem_lab.runners.xen_host import Xen
from vshmem_lab.suites.table import SUITES

# What tests/xen/bench/hypervisors.sh does; the word `die` ends it, as a machine ends that dies.
STAND_IN = """
import base64, os, socket, subprocess
def line():
    end = socket.socket(socket.AF_UNIX)
    end.connect(os.environ["XEN_SERIAL"])
    return end.makefile("rwb")
line().close()  # a QEMU that is started anew
serial = line()
serial.write(b"ready\\n")
serial.flush()
for request in serial:
    where, seconds, text = request.decode().split()
    command = base64.b64decode(text).decode()
    if command == "die":
        raise SystemExit(1)
    done = subprocess.run(["sh", "-c", command], env={**os.environ, "WHERE": where},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    serial.write(b"%d %d\\n%s" % (done.returncode, len(done.stdout), done.stdout))
    serial.flush()
"""
INFO = "xen_version : 4.17.5\nnr_nodes : 1\ntotal_memory : 2559\nvirt_caps : pv hvm\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch) -> Path:
    """The script, with its process's number beside it."""
    path = tmp_path / "tests" / "xen" / "run.sh"
    path.parent.mkdir(parents=True)
    (tmp_path / "stand-in").write_text(STAND_IN)
    path.write_text(
        f'#!/bin/sh\necho $$ >"{tmp_path}/pid"\nexec {sys.executable} "{tmp_path}/stand-in"\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(xen_script, "ROOT", tmp_path)
    return path


def is_running(folder: Path) -> bool:
    """Whether the script of a folder is."""
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_programs_run_where_they_are_to_run(script: Path, tmp_path: Path) -> None:
    with Xen() as host:
        assert host.dom0(["sh", "-c", "echo $WHERE"], 9) == "dom0\n"
        assert host.domain(["printf", "%s", "a 'b'\n$c"], 9) == "a 'b'\n$c"
        with pytest.raises(Failed, match="in a domain of Xen failed with status 3: why"):
            host.domain(["sh", "-c", "echo why >&2; exit 3"], 9)
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


def test_a_machine_with_xen_that_dies_is_booted_again(script: Path, capfd) -> None:
    with Xen() as host:
        with pytest.raises(Failed, match="die in dom0 was cut off: Xen has died"):
            host.dom0(["die"], 9)
        assert host.domain(["echo", "again"], 9) == "again\n"
    assert "booted again" in capfd.readouterr().err


def test_a_program_that_hangs_is_ended_with_its_machine(
    script: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(xen_host, "PATIENCE", 0)
    with Xen() as host:
        with pytest.raises(Failed, match=r"sleep 97 in dom0 did not end within 0\.1 s"):
            host.dom0(["sleep", "97"], 0.1)
        assert not is_running(tmp_path)


@pytest.mark.parametrize(
    ("said", "status", "kind"), [("skipped: no network", 77, Missing), ("broken", 1, Failed)]
)
def test_xen_that_does_not_come_up_says_why(
    said: str, status: int, kind: type[Failed], script: Path
) -> None:
    script.write_text(f"#!/bin/sh\necho '{said}'; exit {status}\n")
    with pytest.raises(Failed, match=said) as raised, Xen():
        pass
    assert raised.type is kind


def test_without_the_tests_of_xen_it_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(xen_script, "ROOT", tmp_path)
    with pytest.raises(Missing, match="checkout"), Xen():
        pass


def case_of(program: str, word: str) -> tuple[Case, Contender]:
    """A case of the suite, and its contender in Xen."""
    return next(
        (case, one)
        for case in SUITES["hypervisors"]
        for one in case.contenders
        if one.runner == named(program, XEN, SMALL) and word in one.words
    )


def test_a_dwarf_in_a_domain_answers_rightly_and_is_emulated(script: Path) -> None:
    case, contender = case_of(OPENMP, "pi")
    paths.build_programs()
    with Xen(xen_domain.files()) as host:
        make = environments.runners(None, (0, 1), None, lambda: host)[contender.runner]
        (found,) = make().measure([Turn(case, contender, case.sizes[0])], 0.02)
    assert found.value > 0
    assert (found.accelerator, found.error) == ("tcg", "")


class Asked:
    """A domain that runs nothing, and prints what hpcc would."""

    def __init__(self, said: str) -> None:
        self.said, self.argv = said, []

    def domain(self, argv: Sequence[str], within: float) -> str:
        """The same whatever it is asked for."""
        self.argv = list(argv)
        return self.said


def test_the_hpc_challenge_has_a_rank_on_each_processor_of_a_domain() -> None:
    case, contender = case_of(hpcc(400), "hpl")
    names = [name for name, _ in environments.Hpcc.SUMMARY.values()]
    domain = Asked("Success=1\n" + "".join(f"{name}=0.002\n" for name in names))
    try:
        runner = environments.runners(None, (0, 1), None, lambda: domain)[contender.runner]()
    except Missing as missing:
        pytest.skip(str(missing))
    (found,) = runner.measure([Turn(case, contender, 0)], 0.02)
    assert (found.value, found.accelerator) == (2000, "tcg")
    assert domain.argv[domain.argv.index("-n") + 1] == "2"
    files = xen_domain.files()
    for needed in ("/usr/bin/hpcc", str(paths.programs() / "pages")):
        assert needed in domain.argv
        assert needed in files
    assert any("mpiexec" in word for word in files)


def test_features_are_those_of_a_xen_that_is_booted(
    script: Path, tmp_path: Path, monkeypatch
) -> None:
    program = tmp_path / "xl"
    program.write_text(f"#!/bin/sh\n[ $1 = help ] || echo '{INFO}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(table, "COLUMNS", {})
    found = table.probe(boot_xen=True)["Xen"]
    assert found[words.VERSION] == "4.17.5, in QEMU/TCG"
    assert found[words.MEANS] == "pv, hvm"
    script.write_text("#!/bin/sh\necho 'skipped: no packages'; exit 77\n")
    assert table.probe(boot_xen=True)["Xen"] == {words.MISSING: "skipped: no packages"}


MEASURED = """measured host-host raw 8 500.25
measured host-host raw 8 700
measured guest-guest bakery 1000 4000
measured guest-guest-up bakery 1000 5000
measured guest-guest segment 1000 4500
measured guest-guest vchan-polled 1000 9000
measured host-host udp 8 1
measured host-host raw 8 x
measured native raw 8 1
"""


def test_xen_lines() -> None:
    found = xen.parse(MEASURED)
    assert [one.value for one in found["host-host", "raw", "8"]] == [500.25, 700]
    assert len(found) == 5
    assert found["host-host", "raw", "8"][0].accelerator == "tcg"


def test_the_papers_table_has_all_its_columns() -> None:
    """Table 6: native Linux; without SMP in the host two places, with it three."""
    cases = [one for one in SUITES["xen"] if one.name == "the papers' Sync"]
    assert [xen.place(one.environment) for one in cases] == [
        "native",
        *("host-guest-up", "guest-guest-up"),
        *("host-host", "host-guest", "guest-guest"),
    ]
    natively = {one.runner for one in cases[0].contenders}
    assert natively == {"pair in a machine"}  # without Xen, emulated alike
    script = (paths.ROOT / "tests" / "xen" / "bench" / "papers.sh").read_text()
    assert "native" not in script.replace("natively", "")
    for one in cases[1:]:
        assert re.search(rf"\b{xen.place(one.environment)}\b", script)
        for method, size in (who.words for who in one.contenders):
            assert f"{method} {size}" in script


def test_a_boot_of_xen_measures_for_all_cases(script: Path) -> None:
    script.write_text(f"#!/bin/sh\necho >>{script}.boots; cat <<'E'\n{MEASURED}E\n")
    domains = xen.Domains(2, 1)

    def measured(case: str, contender: str, size: int = 0) -> float:
        found = next(
            (one, who)
            for one in SUITES["xen"]
            for who in one.contenders
            if (one.label, who.name) == (case, contender)
        )
        return domains.measure([Turn(*found, size)], 1)[0].value

    papers = "the papers' Sync (Xen guest-guest)"
    messages = "a message between guests (Xen guest-guest)"
    assert measured(papers, "Sync 1k") == 4000
    assert measured("the papers' Sync (Xen guest-guest, dom0 without SMP)", "Sync 1k") == 5000
    assert measured(messages, "Vshmem, segment and semaphores", 1000) == 4500
    assert measured(messages, "libxenvchan, polled", 1000) == 9000
    assert Path(f"{script}.boots").read_text() == "\n"
    with pytest.raises(Failed, match="did not measure guest-guest tcp 8"):
        measured(papers, "TCP")


def test_a_machine_with_xen_that_hangs_is_ended(script: Path, tmp_path: Path, monkeypatch) -> None:
    script.write_text(
        f"#!/bin/bash\ntrap 'exit 1' TERM\nsleep 98 | (echo $BASHPID >{tmp_path}/it; cat)\n"
    )
    monkeypatch.setattr(xen, "LIMIT", 1)
    with pytest.raises(Failed, match="did not end within 1 s"):
        xen.Domains(1, 1)
    pid = int((tmp_path / "it").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
