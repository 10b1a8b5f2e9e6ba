"""What of the papers a host can measure, how long it takes, and that it leaves one file."""

from __future__ import annotations

import dataclasses
import io
import os
import tarfile
from pathlib import Path

import pytest
from fakes import Fake, Silent, about, all_fake, case
from vshmem_lab import archive, cli, driver, kvm, paths, running, store
from vshmem_lab.choice import Choice, selected
from vshmem_lab.driver import Driver
from vshmem_lab.model import Failed
from vshmem_lab.papers import cases as of_papers
from vshmem_lab.papers import host, page, plan
from vshmem_lab.papers.host import Host
from vshmem_lab.papers.model import Need, Paper, Rerun, Row, drawing, lacking
from vshmem_lab.report import docs
from vshmem_lab.report.grid import as_text
from vshmem_lab.store import Store

SYNC = Row("figure 1", "Sync", "fast", Rerun("sync", repetitions=25), wants=(Need.KVM,))
TLB = Row("figure 2", "misses", "few", Rerun("algebra", "figure 14:"), needs=(Need.COUNTERS,))
SHOC = lacking("figure 3", "SHOC", "near", "No GPU is at hand.", Need.GPU)
OLD = lacking("figure 4", "an old kernel", "fast", "It is of 2010.")
ROWS = (SYNC, TLB, SHOC, OLD, drawing("figure 5", "a picture"))
PAPER = Paper("000", tuple(row.item for row in ROWS), ROWS)


def a_host(*lacks: Need) -> Host:
    """One that lacks these."""
    return Host(
        {need: lambda need=need: f"it lacks {need.value}" * (need in lacks) for need in Need}
    )


def planned(root: Path, found: Host) -> tuple[list[plan.Item], str]:
    """The plan of that paper, and as it is printed."""
    times = plan.Times(page.Kept(root), 12)
    items = plan.items(found, times, [PAPER])
    return items, "\n".join(map(as_text, plan.grids(items, found, times)))


def test_a_plan_says_what_can_be_measured_and_why_not(tmp_path: Path) -> None:
    items, said = planned(tmp_path, a_host(Need.KVM, Need.COUNTERS, Need.GPU))
    able, unable = said.split("Can't be measured here")
    assert [item.row.item for item in items] == ["figure 1", "figure 2", "figure 3", "figure 4"]
    assert "Sync  without KVM" in able and "Without KVM: it lacks KVM." in able
    for words in ("It lacks counters of misses.", "It lacks a GPU.", "It is of 2010."):
        assert words in unable
    assert {case.suite for case in plan.cases(items)} == {"sync"}
    assert "a picture" not in said


def test_a_host_that_has_all_measures_what_there_is_a_program_for(tmp_path: Path) -> None:
    items, said = planned(tmp_path, a_host())
    able, unable = said.split("Can't be measured here")
    assert "without" not in able.lower() and "yes" in able
    assert "The lab has no program for it." in unable and "No GPU" not in unable
    assert {case.suite for case in plan.cases(items)} == {"sync", "algebra"}


def test_times_are_those_of_kept_runs_else_estimated(tmp_path: Path) -> None:
    sync = of_papers.of(SYNC.rerun)[0]
    times = plan.Times(page.Kept(tmp_path), 12)
    turns = sum(len(sync.sizes_of(one)) for one in sync.contenders)
    assert times.of_one(sync) == turns * plan.A_TURN["sync"]
    assert times.whole([sync]) == 25 * times.once([sync]) == 25 * times.of_one(sync)
    rate = of_papers.of(Rerun("algebra", "0: resident set, memory plentiful"))
    resident = of_papers.of(Rerun("algebra", "1: swapped, memory plentiful"))
    assert times.once([*rate, *resident]) == times.once(rate) > 0, "one job measures both"
    kept = Store.create(tmp_path / "run" / "2026-01-01-sync", about([sync]))
    kept.append([row(sync, number, 100.0 + 7 * number) for number in range(3)])
    docs.keep(kept.folder, "2026-01-01-sync", tmp_path)
    assert plan.Times(page.Kept(tmp_path), 12).of_one(sync) == 7
    larger = dataclasses.replace(sync, sizes=(*sync.sizes, 1 << 20))
    assert plan.Times(page.Kept(tmp_path), 12).of_one(larger) > turns, "it was another case"


def row(one, repetition: int, time: float) -> store.Row:
    """A sample."""
    nothing = dict.fromkeys(store.FIELDS, "")
    known = {"suite": one.suite, "case": one.name, "environment": one.environment, "size": 0}
    known |= {"contender": one.contenders[0].name, "repetition": repetition, "value": 1.0}
    return store.Row(**{**nothing, **known, "time": time, "steady": True})


def test_all_of_the_papers_are_selected_once_and_as_often_as_the_papers_did() -> None:
    cases = selected(Choice((of_papers.PAPERS,)))
    keys = [(one.suite, one.name, one.environment) for one in cases]
    assert len(set(keys)) == len(keys)
    assert {"sync", "dwarfs", "algebra", "hypervisors", "vsuite", "bigdata", "mpi"} == {
        one.suite for one in cases
    }
    assert {one.runs for one in cases if one.suite == "sync"} == {25}
    assert {one.runs for one in cases if one.name.startswith("pi by")} == {50}
    assert {one.least for one in cases} == {1}
    again = selected(Choice((of_papers.PAPERS,), ("pi by",), as_asked=True))
    assert {driver.wanted(one, 3) for one in again} == {3}
    with pytest.raises(Failed, match="name it alone"):
        selected(Choice((of_papers.PAPERS, "sync")))


def test_a_choice_survives_a_runs_metadata() -> None:
    choice = Choice(("sync",), ("a",), sizes=(8,), before="x", as_asked=True)
    kept = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(choice).items()}
    assert Choice.of(kept) == choice
    del kept["as_asked"]
    assert Choice.of(kept) == dataclasses.replace(choice, as_asked=False), "of an earlier lab"


def test_the_plan_is_of_the_papers_only(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["lab", "run", "sync", "--plan"])
    assert cli.main() == 1
    assert "--plan is of papers" in capsys.readouterr().err


@pytest.fixture
def one_case(monkeypatch, tmp_path: Path) -> None:
    """The papers have one case, fake runners measure it, and runs are kept apart."""
    toy = case(sizes=(8,))
    monkeypatch.setattr(running, "selected", lambda _: [toy, case(name="pong")])
    monkeypatch.setattr(running.papers_plan, "items", lambda *_: [])
    monkeypatch.setattr(running.papers_plan, "cases", lambda _: [toy])
    monkeypatch.setattr(running.paths, "runs", lambda: tmp_path / "runs")
    monkeypatch.setattr(running.paths, "build_programs", lambda: None)
    monkeypatch.setattr(running, "Runners", Fakes)


class Fakes:
    """Runners that measure nothing, or are interrupted."""

    interrupted = False

    def __init__(self, *_args) -> None:
        self.find = all_fake(ours=Fake(alter=self._value))

    def _value(self, *_args) -> float:
        if self.interrupted:
            raise KeyboardInterrupt
        return 100.0

    def __enter__(self) -> Fakes:
        return self

    def __exit__(self, *_exc) -> None:
        return None


PLAN = running.Plan(Choice((of_papers.PAPERS,)), 2, 0.01, (0, 1))


@pytest.mark.usefixtures("one_case")
def test_a_run_of_the_papers_measures_what_can_be_and_leaves_one_file(capsys) -> None:
    code, folder = running.new(PLAN, None)
    said = capsys.readouterr().out
    file = folder.with_name(folder.name + archive.SUFFIX)
    assert code == 0 and file.is_file() and file.name in said
    assert [one["case"] for one in store.read_about(folder)["cases"]] == ["ping"]
    with tarfile.open(file) as found:
        assert [one.uname for one in found] == ["", ""]


@pytest.mark.usefixtures("one_case")
def test_a_run_of_the_papers_goes_on_after_an_interrupt(monkeypatch) -> None:
    monkeypatch.setattr(Fakes, "interrupted", True)
    code, folder = running.new(PLAN, None)
    assert code == running.INTERRUPTED
    assert not folder.with_name(folder.name + archive.SUFFIX).exists()
    monkeypatch.setattr(Fakes, "interrupted", False)
    assert running.resume(folder) == 0
    rows = store.read_rows(folder)
    assert {one["case"] for one in rows} == {"ping"} and len(rows) == 4
    assert folder.with_name(folder.name + archive.SUFFIX).is_file()


@pytest.mark.usefixtures("one_case")
def test_a_run_of_another_machine_goes_on_there(monkeypatch) -> None:
    _, folder = running.new(PLAN, None)
    monkeypatch.setattr(running.system, "processor", lambda: "another one, 16 usable")
    with pytest.raises(Failed, match="measured on another machine"):
        running.resume(folder)


def test_what_was_sent_in_is_kept_as_any_run(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    kept = Store.create(tmp_path / "there" / "far", about([case()]))
    Driver(all_fake(), kept, 2, 0.1, Silent()).run([case()])
    file = archive.pack(kept.folder)
    folder = cli.folder_of(str(file))
    assert folder == tmp_path / "runs" / "far" == cli.folder_of(str(file)), "once for all"
    assert docs.keep(folder, "far", tmp_path).is_dir()
    (folder / "samples.csv").write_text("else")
    with pytest.raises(Failed, match="another run far"):
        cli.folder_of(str(file))


def test_a_file_that_is_no_run_is_refused(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "runs", lambda: tmp_path / "runs")
    text, other = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    text.write_text("nothing")
    with pytest.raises(Failed, match="no archive of a run"):
        archive.unpack(text)
    with tarfile.open(other, "w:gz") as file:
        for name, kind in (("../run.json", tarfile.REGTYPE), ("samples.csv", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            file.addfile(member, io.BytesIO(b""))
    with pytest.raises(Failed, match="has not run.json and samples.csv"):
        archive.unpack(other)
    assert not (tmp_path / "runs").exists()


def test_a_host_is_asked_once_and_only_for_what_is_needed() -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        return ""

    found = Host({Need.KVM: ask})
    assert asked == [] and found.lacks(Need.KVM) == found.lacks(Need.KVM) == ""
    assert asked == [1]


def a_root(root: Path, **files: str) -> Path:
    """A system with these files; __ stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_what_a_host_has_is_seen(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    none = a_root(tmp_path / "empty", proc__swaps="Filename\n")
    for look in (host.nodes, host.swap, host.xen, host.gpu, host.infiniband, kvm.refused):
        assert look(none), look.__name__
    gpu = "sys__bus__pci__devices__1__"
    node = "sys__devices__system__node__node"
    both = a_root(
        tmp_path / "full",
        proc__swaps="Filename\n/dev/sda2 partition\n",
        proc__xen__capabilities="control_d\n",
        sys__class__infiniband__mlx5_0="",
        **{f"{gpu}class": "0x030200\n", f"{gpu}vendor": "0x10de\n"},
        **{f"{node}0__cpulist": "0-3\n", f"{node}1__cpulist": "4-7\n"},
    )
    for look in (host.nodes, host.swap, host.xen, host.gpu, host.infiniband):
        assert look(both) == "", look.__name__
    (both / "sys/devices/system/node/node1/cpulist").write_text("\n")
    (both / "sys/bus/pci/devices/1/vendor").write_text("0x1234\n")
    assert host.nodes(both) and host.gpu(both)


def test_kvm_that_boots_nothing_is_none(monkeypatch, tmp_path: Path) -> None:
    device = a_root(tmp_path, dev__kvm="") / "dev"
    device.chmod(0o755)
    command = tmp_path / "vshmem"
    monkeypatch.setenv("VSHMEM_BIN", str(command))
    for status, told in ((0, ""), (1, "no machine boots by this host's KVM")):
        command.write_text(
            f'#!/bin/sh\necho "$@" >>{tmp_path}/said\n[ $1 = down ] || exit {status}\n'
        )
        command.chmod(0o755)
        assert kvm.refused(tmp_path) == told
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.split()[0] for line in said] == ["up", "down"] * 2
    assert f"lab-{os.getpid()}-kvm" in said[0] and "--accel kvm" in said[0]


def test_counters_and_processors_are_asked_for() -> None:
    for look in (host.counters, host.cores):
        assert look() == "" or look()[0].islower()
    assert host.hosts()
    assert set(host.PROBES) == set(Need)
