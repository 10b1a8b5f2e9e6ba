#!/usr/bin/env python3
"""Lists the blocks of README and the guides that no test runs and that do not say why.

    scripts/blocks.py          what is wrong; fails if anything is
    scripts/blocks.py --list   each block: page, line, section, and what becomes of it

A test runs the blocks of a section by `blocks_of PAGE "SECTION"` (tests/lib/blocks.sh). Of a
cluster's file (toml) the unit tests read each. Any other block says why it is not run, in a
comment above it: <!-- not run: REASON -->.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("guide-*.md"))]
CALL = re.compile(r"blocks_of \S*?([\w-]+\.md)\"? \"([^\"]+)\"")
REASON = re.compile(r"<!-- not run: (.+?) -->")
# Where the toml blocks of these pages are read.
READERS = {
    "guide-cluster-file.md": "crates/cli/src/up.rs",
    "guide-images.md": "crates/machines/cluster/src/images/table.rs",
}


def blocks(page):
    """Line, section, language and reason of each block."""
    section = language = reason = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if language is None:
                language = line[3:] or "text"
                yield number, section, language, reason
            else:
                language = reason = None
        elif language is None:
            if line.startswith("#"):
                section = line.lstrip("#").strip()
            if found := REASON.match(line):
                reason = found[1]
            elif line and not line.startswith("<!--"):
                reason = None


def calls():
    """The sections that tests run, each with a file that does."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "tests"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    found = {}
    for file in filter(lambda name: name.endswith(".sh"), files):
        for call in CALL.finditer((ROOT / file).read_text()):
            found[call.groups()] = file
    return found


def main():
    """Compares both."""
    run, wrong, used = calls(), [], set()
    for page in PAGES:
        for number, section, language, reason in blocks(page):
            key = (page.name, section)
            if reason:
                fate = f"not run: {reason}"
            elif language == "toml" and page.name in READERS:
                fate = READERS[page.name]
                used |= {key} & run.keys()
            elif key in run:
                fate = run[key]
                used.add(key)
            else:
                fate = "?"
                wrong.append(
                    f"{page.relative_to(ROOT)}:{number}: no test runs this block ('{section}'): "
                    "see tests/lib/blocks.sh"
                )
            if "--list" in sys.argv:
                print(f"{page.relative_to(ROOT)}:{number}: {section} ({language}): {fate}")
    wrong += [
        f"{file}: {page} has no block in a section '{section}'"
        for (page, section), file in run.items()
        if (page, section) not in used
    ]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


sys.exit(main())
