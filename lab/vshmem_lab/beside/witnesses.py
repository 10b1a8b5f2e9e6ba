"""What each tool says of a system, as lines of its own words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from vshmem_lab import paths
from vshmem_lab.beside.plants import GUEST

# Runs a script as root in the machine; its output.
Shell = Callable[[str], str]
DOCTOR, TUNED, VALIDATE = "vshmem doctor", "tuned-adm verify", "virt-host-validate"
TOOLS = (DOCTOR, TUNED, VALIDATE)
# What others on the real host change at any time.
LOAD = ("jitter", "run-delay", "steal")
LOG = "/var/log/tuned/tuned.log"
PROFILES = {GUEST: "virtual-guest", "host": "virtual-host"}
FAILED = re.compile(r"ERROR\s+\S+ (verify: failed: .*)")
CHECKED = re.compile(r"^\s*QEMU: (.*?)\s+: (FAIL|WARN|NOTE)(.*)$", re.MULTILINE)
PID = re.compile(r" \(\d+\)")


def doctor(shell: Shell) -> list[str]:
    """What costs."""
    told = json.loads(shell(f"{paths.command()} doctor --json || test $? -eq 1"))
    costs = [one for one in told["findings"] if one["verdict"] == "costs"]
    return [f"{x['id']}: {PID.sub('', x['why'])}" for x in costs if x["id"] not in LOAD]


def start_tuned(shell: Shell) -> None:
    """Starts tuned, and the bus by which it is asked."""
    folders = "/run/dbus /run/tuned /var/log/tuned"
    shell(f"mkdir -p {folders}; dbus-daemon --system --fork; tuned -d -P -l -p virtual-guest")


def profile(shell: Shell, part: str) -> None:
    """Puts a profile in force."""
    shell(f"tuned-adm profile {PROFILES[part]}; : >{LOG}; tuned-adm active")


def tuned(shell: Shell) -> list[str]:
    """Where the system is not as the profile has it."""
    said = shell(f": >{LOG}; tuned-adm verify >/run/verified; cat {LOG} /run/verified")
    if "verifying profile" not in said:
        raise ValueError(f"tuned did not verify: {said}")
    return FAILED.findall(said)


def validate(shell: Shell) -> list[str]:
    """What the host lacks."""
    found = CHECKED.findall(shell("virt-host-validate qemu || :"))
    return [f"{what}: {verdict}{why}" for what, verdict, why in found]


def all_said(shell: Shell) -> dict[str, list[str]]:
    """What all of them say."""
    return {DOCTOR: doctor(shell), TUNED: tuned(shell), VALIDATE: validate(shell)}
