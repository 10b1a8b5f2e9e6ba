#!/usr/bin/env python3
"""Which suites passed on which system: records of runs, and the pages that are made of them.

    tested.py record DIRECTORY SUITE...   of a run whose logs are there, into DIRECTORY/tested.json
    tested.py keep FILE...                takes such records into docs/tested/, suite by suite
    tested.py write                       makes docs/tested.md and README's sentence of docs/tested/
    tested.py check                       says whether they are made of it (lint does)
    tested.py unchanged SUITE PATH...     succeeds if the suite passed on this system, as is kept,
                                          and no code at the paths has changed since

A run of a checkout that has changes which are not committed is not kept.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs/tested"
PAGE = ROOT / "docs/tested.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- tested -->", "<!-- tested end -->"
# How each is asked for its version, and which suites use it (None: all).
TOOLS = {
    "glibc": (["ldd", "--version"], None),
    "rustc": ([str(ROOT / "scripts/cargo.sh"), "--exec", "--version"], None),
    "Python": (["/usr/bin/python3", "--version"], None),
    "QEMU": (["qemu-system-x86_64", "--version"], ("machines", "mpi", "kvm", "kmod")),
    "libvirt": (["libvirtd", "--version"], ("machines",)),
    "MPICH": (["mpichversion"], ("mpi", "programs")),
    "Open MPI": (["ompi_info", "--version"], ("mpi",)),
}
PAGE_TEXT = """# What was run on what

Made by `scripts/tested.py` of the runs in `docs/tested/`; nobody writes here. A row is the newest
run of a suite ([what each shows](../tests/README.md)) on that system, with its date and commit.
Debian 13 is a minimal system in name spaces (`make test-debian13`) of the kernel that stands first;
machines boot the kernel that stands second.

## Versions

{versions}

## Suites

{suites}
"""
# A line of a comment in Rust or C, as git reads it.
COMMENT = r"^[[:space:]]*//"
VERSION = re.compile(r"\d+\.\d+(\.\d+)*")


def said(command):
    """What a command prints; nothing, if it is not there or fails."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def system():
    """This system's name, as Debian 13.2."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    release = {name: value.strip('"') for name, value in release.items()}
    point = pathlib.Path("/etc/debian_version")
    version = release.get("VERSION_ID", "")
    if release.get("ID") == "debian" and point.exists():
        version = point.read_text().strip()
    return f"{release.get('NAME', 'Linux').replace(' GNU/Linux', '')} {version}".strip()


def commit():
    """The commit that is checked out, with a + behind it if there are other changes."""
    exported = ROOT / ".commit"
    if exported.exists():
        return exported.read_text().strip()
    changed = "+" if said(["git", "-C", str(ROOT), "status", "--porcelain"]) else ""
    return said(["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]).strip() + changed


def versions(suites, logs):
    """The versions of what these suites used."""
    found = {"Linux": os.uname().release}
    for name, (command, users) in TOOLS.items():
        if users and not any(suite in suites for suite in users):
            continue
        match = VERSION.search(said(command))
        if match:
            found[name] = match[0]
    if "mpi" in suites or "programs" in suites:
        listed = re.search(r"\S*/libucp\.so\S*", said(["ldconfig", "-p"]))
        vshmem = os.environ.get("VSHMEM_BIN", str(ROOT / "target/release/vshmem"))
        if listed:
            found["UCX"] = said([vshmem, "library-version", listed[0]]).strip()
    logged = "".join(
        (logs / f"{suite}.log").read_text(errors="replace")
        for suite in ("machines", "mpi", "xen")
        if suite in suites and (logs / f"{suite}.log").exists()
    )
    for name, pattern in {
        "Linux in machines": r"^ +machines boot Linux (\S+)",
        "Xen": r"^ +domains run on Xen (\S+)",
    }.items():
        match = re.search(pattern, logged, re.M)
        if match:
            found[name] = match[1]
    return {name: version for name, version in found.items() if version}


def record(logs, suites):
    """Writes down what came of a run of these suites."""
    at = commit()
    results = {}
    for suite in suites:
        verdict = logs / f"{suite}.verdict"
        log = logs / f"{suite}.log"
        if not verdict.exists():
            continue
        outcome, seconds, _parts = verdict.read_text().split()
        counted = re.findall(r"^(\d+) passed, \d+ failed", log.read_text(errors="replace"), re.M)
        results[suite] = {
            "outcome": outcome.lower(),
            "passed": int(counted[-1]) if counted else None,
            "seconds": int(seconds),
            "date": datetime.date.today().isoformat(),
            "commit": at,
        }
    told = {"system": system(), "versions": versions(suites, logs), "suites": results}
    (logs / "tested.json").write_text(json.dumps(told, indent=1) + "\n")


def keep(files):
    """Takes records over. A suite's newer result replaces the older one."""
    KEPT.mkdir(exist_ok=True)
    for file in files:
        told = json.loads(pathlib.Path(file).read_text())
        changed = [suite for suite, of in told["suites"].items() if of["commit"].endswith("+")]
        if changed:
            sys.exit(f"{file}: {', '.join(changed)} ran with changes that are not committed")
        kept = kept_file(told["system"])
        before = json.loads(kept.read_text()) if kept.exists() else {"versions": {}, "suites": {}}
        told["versions"] = {**before["versions"], **told["versions"]}
        run = {suite: of for suite, of in told["suites"].items() if of["outcome"] != "skipped"}
        told["suites"] = {**before["suites"], **run}
        kept.write_text(json.dumps(told, indent=1) + "\n")


def kept():
    """All systems' records, the newest system first."""
    return [json.loads(file.read_text()) for file in sorted(KEPT.glob("*.json"), reverse=True)]


def kept_file(name):
    """The file of the records of a system of this name."""
    return KEPT / f"{re.sub(r'[^a-z0-9]+', '-', re.sub(r'[.][0-9]+$', '', name).lower())}.json"


def unchanged(suite, paths):
    """Whether the suite's last record on this system tells what a run of it now would."""
    file = kept_file(system())
    of = json.loads(file.read_text())["suites"].get(suite) if file.exists() else None
    if not of or of["outcome"] != "passed":
        return False
    git = ["git", "-C", str(ROOT)]
    questions = (
        ["merge-base", "--is-ancestor", of["commit"], "HEAD"],
        ["diff", "--quiet", "-I", COMMENT, of["commit"], "--", *paths],
    )
    return all(
        subprocess.run([*git, *question], stderr=subprocess.DEVNULL, check=False).returncode == 0
        for question in questions
    )


def page():
    """docs/tested.md"""
    all_kept = kept()
    names = ["Linux", "Linux in machines"]
    names += [name for name in (*TOOLS, "UCX", "Xen") if name not in names]
    head = ["", *(of["system"] for of in all_kept)]
    rows = [[name, *(of["versions"].get(name, "") for of in all_kept)] for name in names]
    suites = sorted({suite for of in all_kept for suite in of["suites"]})

    def cell(of, suite):
        result = of["suites"].get(suite)
        if not result:
            return ""
        is_counted = result["passed"] and result["outcome"] == "passed"
        checks = f" ({result['passed']} checks)" if is_counted else ""
        return f"{result['outcome']}{checks}, {result['date']}, {result['commit'][:8]}"

    results = [[f"`{suite}`", *(cell(of, suite) for of in all_kept)] for suite in suites]

    def table(lines):
        divider = ["---"] * len(head)
        return "\n".join("| " + " | ".join(line) + " |" for line in [head, divider, *lines])

    return PAGE_TEXT.format(versions=table(rows), suites=table(results))


def sentence():
    """README's sentence."""
    parts = []
    for of in kept():
        results = of["suites"].items()
        passed = [suite for suite, result in results if result["outcome"] == "passed"]
        failed = [suite for suite, result in results if result["outcome"] != "passed"]
        newest = max(result["date"] for _, result in results)
        but = f", and {', '.join(failed)} failed" if failed else ""
        parts.append(f"{len(passed)} suites passed on {of['system']}{but} ({newest})")
    return f"{'; '.join(parts)}: [which, and with what](docs/tested.md)."


def pages():
    """Each page that is made, and its text."""
    words, lines = sentence().split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > 110:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    text = README.read_text()
    before, rest = text.split(BEGIN + "\n", 1)
    _, after = rest.split(END, 1)
    made = "\n".join(lines)
    return {PAGE: page(), README: f"{before}{BEGIN}\n{made}\n{END}{after}"}


def main():
    match sys.argv[1:]:
        case ["record", logs, *suites]:
            record(pathlib.Path(logs), suites)
        case ["keep", *files] if files:
            keep(files)
        case ["write"]:
            for file, text in pages().items():
                file.write_text(text)
        case ["unchanged", suite, *paths] if paths:
            sys.exit(0 if unchanged(suite, paths) else 1)
        case ["check"]:
            made = pages().items()
            old = [
                file.name for file, text in made if not file.exists() or file.read_text() != text
            ]
            if old:
                sys.exit(f"{', '.join(old)}: not as docs/tested says. Run scripts/tested.py write")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
