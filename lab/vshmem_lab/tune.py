"""A program: has kernel_tuner find the parameters of src/algebra/blocked.c that are best here.

    python -m vshmem_lab.tune SPACE ROWS CACHE

All of a space is tried ("whole", or a "small" part of it). What is compiled is kept in the folder
CACHE; where that can't be written, it is only used. Prints "WHAT 0 VALUE" lines: the parameters,
the rate in Mflop/s, and how many were tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path

# As src/algebra/blocked.c explains them.
PARAMETERS = ("NB", "MU", "NU", "KU", "VW", "MA", "LAT")
SPACES = {
    "small": {"NB": [48], "MU": [1, 2], "NU": [4], "KU": [4], "VW": [2], "MA": [0], "LAT": [0, 2]},
    "whole": {
        "NB": [48, 192],
        "MU": [1, 3],
        "NU": [4, 8],
        "KU": [1, 8],
        "VW": [1, 2, 4, 8],
        "MA": [0, 1],
        "LAT": [0, 4],
    },
}
# What vectors of so many doubles need of the processor.
NEEDS = {1: "sse2", 2: "sse2", 4: "avx2", 8: "avx512f"}
# A product and a sum that are one operation have no time between them; a tile has to fit into the
# registers.
RESTRICTIONS = [
    "MA * LAT == 0",
    "NB % KU == 0",
    "MU * NU + MU + 1 + LAT <= 16 or (VW == 8 and MU * NU + MU + 1 + LAT <= 32)",
]
SOURCE = Path(__file__).parent.parent / "src" / "algebra"


def flags() -> set[str]:
    """What this processor has."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def space_of(name: str, has: set[str]) -> dict[str, list[int]]:
    """What of a space this processor can run."""
    found = dict(SPACES[name])
    found["VW"] = [width for width in found["VW"] if NEEDS[width] in has]
    found["MA"] = [one for one in found["MA"] if not one or "fma" in has]
    return found


def search(space: str, rows: int, cache: str) -> dict[str, float]:
    """The best of them."""
    import kernel_tuner
    import numpy as np

    # It expects a graphics processor's blocks of threads.
    warnings.filterwarnings("ignore", message="None of the tunable parameters")
    random = np.random.default_rng(1)
    a, b = (np.asfortranarray(random.random((rows, rows))) for _ in range(2))
    c = np.zeros((rows, rows), order="F")
    os.environ["VSHMEM_LAB_COMPILED"] = cache
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = kernel_tuner.tune_kernel(
            "tuned",
            str(SOURCE / "blocked.c"),
            (1,),
            [c, a, b, np.int32(rows)],
            space_of(space, flags()),
            lang="C",
            compiler=str(SOURCE / "compiler.sh"),
            compiler_options=["-O3", "-std=gnu11"],
            restrictions=RESTRICTIONS,
            answer=[a @ b, None, None, None],
            atol=1e-9,
            iterations=3,
            verbose=False,
        )
    tried = [one for one in results if isinstance(one.get("time"), float)]
    if not tried:
        raise SystemExit(f"kernel_tuner could run none of {len(results)}: {results[:1]}")
    best = min(tried, key=lambda one: one["time"])
    rate = 2e-3 * rows**3 / best["time"]
    chosen = {name.lower(): best[name] for name in PARAMETERS}
    return {**chosen, "rate": rate, "tried": len(tried)}


def main() -> None:
    """Searches, and prints what was found."""
    space, rows, cache = sys.argv[1:]
    for what, value in search(space, int(rows), cache).items():
        print(f"{what} 0 {value:.6g}")


if __name__ == "__main__":
    main()
