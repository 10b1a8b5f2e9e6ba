"""Other tools beside doctor: what they say is read rightly, and shown as it was said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from vshmem_lab.beside import numad, witnesses
from vshmem_lab.beside.plants import GUEST, PLANTS, Planted
from vshmem_lab.report import docs
from vshmem_lab.report.beside import tables

DOCTOR = {
    "findings": [
        {"id": "ksm", "verdict": "costs", "why": "KSM is on."},
        {"id": "shared-cores", "verdict": "costs", "why": "CPU 0/KVM of guest (71) shares a core."},
        {"id": "jitter", "verdict": "costs", "why": "It is late."},
        {"id": "swap", "verdict": "fine", "why": "None."},
    ]
}
TUNED = """2026-11-26 13:17:53,611 INFO     tuned.daemon.daemon: verifying profile(s): virtual-guest
2026-11-26 13:17:54,254 INFO     tuned.plugins.base: verify: passed: 'vm.dirty_ratio' = '30'
2026-11-26 13:17:54,486 ERROR    tuned.plugins.base: verify: failed: 'vm.swappiness' = '60', \
expected '30'
"""
VALIDATE = """  QEMU: Checking for hardware virtualization       : PASS
  QEMU: Checking if device /dev/kvm exists         : FAIL (Check that the module is loaded)
  QEMU: Checking for device assignment IOMMU support : WARN (Unknown)
"""


def says(text: str) -> Callable[[str], str]:
    """A machine in which every script prints this."""
    return lambda _script: text


def test_what_tools_say_is_read() -> None:
    found = witnesses.doctor(says(json.dumps(DOCTOR)))
    assert found == ["ksm: KSM is on.", "shared-cores: CPU 0/KVM of guest shares a core."]
    assert witnesses.tuned(says(TUNED)) == ["verify: failed: 'vm.swappiness' = '60', expected '30'"]
    assert witnesses.validate(says(VALIDATE)) == [
        "Checking if device /dev/kvm exists: FAIL (Check that the module is loaded)",
        "Checking for device assignment IOMMU support: WARN (Unknown)",
    ]
    with pytest.raises(ValueError, match="did not verify"):
        witnesses.tuned(says("Cannot talk to TuneD daemon via DBus."))


def test_where_a_machine_is_is_read() -> None:
    state = numad.state(says("N1: 402\nN0: 0\nmay run: 0-1\nkhugepaged: 10000\n"))
    assert state == numad.State({"1": 402}, "0-1", "10000")
    assert state.said == "402 MiB on node 1; processor on 0-1; khugepaged each 10 s"


def test_plants_are_of_checks_and_are_taken_away() -> None:
    for plant in PLANTS:
        assert bool(plant.plant) == bool(plant.undo), plant.name
        assert plant.plant or plant.machine, plant.name
    assert "host-nodes=1" in Planted(node=1).started()
    assert " -S " in Planted().started()
    assert " -S " not in Planted(paused=False).started()


def result(file: Path) -> None:
    """What a run has kept."""
    usual = {
        "vshmem doctor": ["ksm: On."],
        "tuned-adm verify": [],
        "virt-host-validate": ["No IOMMU: WARN"],
    }
    said = {
        "vshmem doctor": ["jitter: late|later", "clock-source: Slow.", "ksm: On, and more."],
        "tuned-adm verify": ["verify: failed: 'a' = '1', expected '2'"],
        "virt-host-validate": [],
    }
    plants = [
        {"name": "", "part": GUEST, "check": "", "said": usual},
        {"name": "a slow clock", "part": GUEST, "check": "clock-source", "said": said},
    ]
    state = {"memory": {"1": 400}, "processor": "0", "khugepaged": "10000"}
    moved = {**state, "memory": {"0": 399}}
    after = [{"name": "far", "before": state, "after": moved, "log": []}]
    about = {"plants": plants, "numad": after, "versions": {"tuned": "tuned 2"}, "kernel": "6.1"}
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(about))


def test_the_table_has_their_own_words(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "results" / "one.json"
    result(file)
    lines = tables(file)
    assert lines[2] == (
        "| guest: a slow clock | clock-source: Slow.<br>and jitter: late\\|later | "
        "verify: failed: 'a' = '1', expected '2' | - |"
    ), "what it had found before is not new"
    text = "\n".join(lines)
    assert "| guest: nothing (virtual-guest is in force) | ksm: On. | - | No IOMMU: WARN |" in text
    assert "| far | 400 MiB on node 1; processor on 0; khugepaged" in text
    assert "| 399 MiB on node 0; processor on 0; khugepaged" in text
    page = tmp_path / "page.md"
    page.write_text("<!-- beside one -->\ntyped in\n<!-- lab end -->\nAfter.\n")
    filled = docs.filled(page, tmp_path)
    assert "typed in" not in filled
    assert "a slow clock" in filled
    assert filled.endswith("<!-- lab end -->\nAfter.\n")
