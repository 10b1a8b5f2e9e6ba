"""A program: has kernel_tuner find the parameters of src/algebra that are best here, by routine.

    python -m vshmem_lab.tune SPACE ROWS CACHE

All of a space is tried ("whole", or a "small" part of it). What is compiled is kept in the folder
CACHE; where that can't be written, it is only used. Prints "ROUTINE-WHAT 0 VALUE" lines: the
parameters, the rate in Mflop/s, and how many were tried.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

# What vectors of so many doubles need of the processor.
NEEDS = {1: "sse2", 2: "sse2", 4: "avx2", 8: "avx512f"}
SOURCE = Path(__file__).parent.parent / "src" / "algebra"


@dataclass(frozen=True)
class Routine:
    """A routine of BLAS, and the parameters of its source, as that explains them."""

    source: str
    function: str  # what kernel_tuner calls
    called: dict[str, str]  # the papers' names of the parameters, by the source's
    small: dict[str, list[int]]
    whole: dict[str, list[int]]
    # What no variant can be, or is worth its compilation: a tile has to fit into the registers.
    restrictions: tuple[str, ...]

    @property
    def path(self) -> str:
        """Its source."""
        return str(SOURCE / self.source)

    def space(self, name: str, has: set[str]) -> dict[str, list[int]]:
        """What of a space, small or whole, this processor can run."""
        found = dict(self.small if name == "small" else self.whole)
        found["VW"] = [width for width in found["VW"] if NEEDS[width] in has]
        if "MA" in found:
            found["MA"] = [one for one in found["MA"] if not one or "fma" in has]
        return found


def _unrolled(function: str, rows: str, columns: str) -> Routine:
    """Of a matrix and vectors: the papers' names of its rows and columns that are unrolled."""
    return Routine(
        "unrolled.c",
        function,
        {"ROWS": rows, "COLUMNS": columns, "VW": "vw"},
        {"ROWS": [4], "COLUMNS": [1, 4], "VW": [2]},
        {"ROWS": [2, 4, 16], "COLUMNS": [1, 4, 16, 32], "VW": [1, 2, 4, 8]},
        ("ROWS % VW == 0", "ROWS * COLUMNS <= 64 * VW"),
    )


ROUTINES = {
    "gemm": Routine(
        "blocked.c",
        "tuned",
        {name: name.lower() for name in ("NB", "MU", "NU", "KU", "VW", "MA", "LAT")},
        {"NB": [48], "MU": [1, 2], "NU": [4], "KU": [4], "VW": [2], "MA": [0], "LAT": [0, 2]},
        {
            "NB": [48, 192],
            "MU": [1, 3],
            "NU": [4, 8],
            "KU": [1, 8],
            "VW": [1, 2, 4, 8],
            "MA": [0, 1],
            "LAT": [0, 4],
        },
        (
            # A product and a sum that are one operation have no time between them.
            "MA * LAT == 0",
            "NB % KU == 0",
            "MU * NU + MU + 1 + LAT <= 16 or (VW == 8 and MU * NU + MU + 1 + LAT <= 32)",
        ),
    ),
    "gemvn": _unrolled("tuned_gemvn", "yunroll", "xunroll"),
    "gemvt": _unrolled("tuned_gemvt", "xunroll", "yunroll"),
    "ger": _unrolled("tuned_ger", "mu", "nu"),
}


def flags() -> set[str]:
    """What this processor has."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def operands(name: str, rows: int) -> tuple[list, list]:
    """What a routine's function is called with, and what has to be in these afterwards."""
    import numpy as np

    random = np.random.default_rng(1)
    a, b = (np.asfortranarray(random.random((rows, rows))) for _ in range(2))
    x, y = random.random(rows), random.random(rows)
    n, matrix, vector = np.int32(rows), np.zeros((rows, rows), order="F"), np.zeros(rows)
    found = {
        "gemm": (a @ b, [matrix, a, b, n]),
        "gemvn": (a @ x, [vector, a, x, n]),
        "gemvt": (a.T @ x, [vector, a, x, n]),
        "ger": (np.outer(x, y) + a, [matrix, a, x, y, n]),
    }
    answer, arguments = found[name]
    return arguments, [answer, *[None] * (len(arguments) - 1)]


def search(name: str, space: str, rows: int) -> dict[str, float]:
    """The best of a routine's variants."""
    import kernel_tuner

    routine = ROUTINES[name]
    arguments, answer = operands(name, rows)
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = kernel_tuner.tune_kernel(
            routine.function,
            routine.path,
            (1,),
            arguments,
            routine.space(space, flags()),
            lang="C",
            compiler=str(SOURCE / "compiler.sh"),
            compiler_options=["-O3", "-std=gnu11"],
            restrictions=list(routine.restrictions),
            answer=answer,
            atol=1e-9,
            iterations=3,
            verbose=False,
        )
    tried = [one for one in results if isinstance(one.get("time"), float)]
    if not tried:
        raise SystemExit(f"kernel_tuner could run none of {len(results)}: {results[:1]}")
    best = min(tried, key=lambda one: one["time"])
    operations = 2 * rows ** (3 if name == "gemm" else 2)
    chosen = {said: best[parameter] for parameter, said in routine.called.items()}
    return {**chosen, "rate": 1e-3 * operations / best["time"], "tried": len(tried)}


def main() -> None:
    """Searches, and prints what was found."""
    space, rows, cache = sys.argv[1:]
    # It expects a graphics processor's blocks of threads.
    warnings.filterwarnings("ignore", message="None of the tunable parameters")
    os.environ["VSHMEM_LAB_COMPILED"] = cache
    for name in ROUTINES:
        for what, value in search(name, space, int(rows)).items():
            print(f"{name}-{what} 0 {value:.6g}")


if __name__ == "__main__":
    main()
