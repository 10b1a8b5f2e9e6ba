#!/usr/bin/env python3
"""Lists paths that pages name in backticks and that are not there; fails if there is one.

A path is the end of a file's path, in which `src/` may be left out: `capi/process/gate.rs` for
`crates/sysv/capi/src/process/gate.rs`. What has no slash, or no ending of a source file, is not
looked at.
"""

import re
import subprocess
import sys
from pathlib import Path

# Other pages name files of other projects, too.
PAGES = [
    "DESIGN.md",
    "SECURITY.md",
    "SPECIFICATION.md",
    "CONTRIBUTING.md",
    "docs/design/*.md",
    "docs/porting.md",
    "crates/**/README.md",
]
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:c|h|md|py|rs|sh|toml))`")


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        capture_output=True,
        check=True,
        text=True,
    )
    return [name for name in listed.stdout.splitlines() if Path(name).exists()]


def main() -> int:
    files = ["/" + name for name in tracked()]
    ends = files + [name.replace("/src/", "/") for name in files]
    missing = 0
    for page in sorted(set(tracked(*PAGES))):
        for number, line in enumerate(Path(page).read_text().splitlines(), 1):
            for path in PATH.findall(line):
                if not any(name.endswith("/" + path) for name in ends):
                    print(f"{page}:{number}: there is no {path}")
                    missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
