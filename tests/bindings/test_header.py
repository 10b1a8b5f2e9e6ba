"""vshmem.h, docs/ffi.md, the Python module and the Rust crate say the same."""

import re
import subprocess
from pathlib import Path

from vshmem import _library

ROOT = Path(__file__).resolve().parents[2]
C_TYPE = r"(.*?)(\w+)"
# C's types for ctypes and for Rust's FFI.
PLAIN = {
    "int": ("c_int", "c_int"),
    "key_t": ("c_int", "key_t"),
    "pid_t": ("c_int", "pid_t"),
    "unsigned": ("c_uint", "c_uint"),
    "mode_t": ("c_uint", "mode_t"),
    "size_t": ("c_size_t", "size_t"),
    "ssize_t": ("c_ssize_t", "ssize_t"),
    "long": ("c_long", "c_long"),
    "uint64_t": ("c_uint64", "u64"),
}
POINTED = {"char": "c_char", "void": "c_void", "double": "f64", "int64_t": "i64", "uint8_t": "u8"}


def spaced(text: str) -> str:
    """Put one space where there is white space."""
    return " ".join(text.split())


def prototypes() -> dict[str, tuple[str, str, list[str]]]:
    """Return whole prototype, result and arguments of each function of the header, by name."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include/vshmem.h").read_text(), flags=re.DOTALL)
    found = {}
    for result, name, inside in re.findall(
        r"^([\w ]+[ *])(vshm_\w+)\(([^;{]*)\);", text, flags=re.MULTILINE
    ):
        arguments = [] if inside == "void" else spaced(inside).split(", ")
        found[name] = (spaced(f"{result}{name}({inside})"), result.strip(), arguments)
    return found


def type_of(argument: str) -> str:
    """Take the name off an argument."""
    return argument if argument == "..." else re.sub(r"\w+$", "", argument).strip()


def for_ctypes(c: str) -> str:
    if c == "const char *":
        return "c_char_p"
    return "c_void_p" if c.endswith("*") or c == "..." else PLAIN[c][0]


def for_rust(c: str) -> str:
    if c == "...":
        return c
    if not c.endswith("*"):
        return PLAIN[c][1]
    to = c.removeprefix("const ").removesuffix("*").strip().removeprefix("struct ")
    return f"*{'const' if c.startswith('const ') else 'mut'} {POINTED.get(to, to)}"


def of_ctypes(kind: object) -> str:
    name: str = kind.__name__  # type: ignore[attr-defined]
    name = "c_void_p" if name.startswith("LP_") else name
    # The same on these systems; ctypes makes one of the others.
    return {"c_ulong": "c_size_t", "c_long": "c_ssize_t"}.get(name, name)


def test_the_header_is_read() -> None:
    assert len(prototypes()) == 29 and "vshm_semctl" in prototypes()
    exports = (ROOT / "debian/libvshmem1.symbols").read_text()
    assert set(re.findall(r"\bvshm_\w+", exports)) == set(prototypes())


def test_the_table() -> None:
    text = (ROOT / "docs/ffi.md").read_text()
    rows = re.findall(r"^\| `([^`]*vshm_[^`]*)` \| `(.*?)` \| (?:`(.*?)` )?\|$", text, re.MULTILINE)
    expected = [
        (whole, for_ctypes(result), ", ".join(for_ctypes(type_of(a)) for a in arguments))
        for whole, result, arguments in prototypes().values()
    ]
    assert rows == expected


def test_the_python_module() -> None:
    all_of_them = prototypes()
    for name, (result, arguments) in _library.FUNCTIONS.items():
        _, c_result, c_arguments = all_of_them[name]
        same = {"c_uint64": "c_size_t", "c_long": "c_ssize_t"}
        expected = [for_ctypes(c_result), *(for_ctypes(type_of(a)) for a in c_arguments)]
        declared = [of_ctypes(kind) for kind in (result, *arguments)]
        assert declared == [same.get(e, e) for e in expected], name


def test_the_rust_crate() -> None:
    text = spaced((ROOT / "bindings/rust/src/sys.rs").read_text())
    declared = {
        name: [result, *(a.split(": ")[-1].strip() for a in inside.split(", ") if a.strip(", "))]
        for name, inside, result in re.findall(r"pub fn (vshm_\w+)\((.*?)\) -> (.*?);", text)
    }
    expected = {
        name: [for_rust(result), *(for_rust(type_of(a)) for a in arguments)]
        for name, (_, result, arguments) in prototypes().items()
    }
    assert {n: [t.rstrip(",") for t in types] for n, types in declared.items()} == expected
    for name, value in re.findall(r"pub const (VSHM_\w+): c_int = (\d);", text):
        assert f"{name} = {value}" in (ROOT / "include/vshmem.h").read_text()


def test_constants_and_structures(tmp_path: Path) -> None:
    """What the compiler says of the tables' numbers."""
    text = (ROOT / "docs/ffi.md").read_text()
    constants = re.findall(r"\| `([A-Z_]+)` \| (\d+) (?=\|)", text)
    constants += re.findall(r"`(E[A-Z]+)` (\d+)", text)
    structures = re.findall(r"^\| `(struct \w+)` \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    assert len(constants) == 27 and len(structures) == 6
    claims = [f"{name} == {value}" for name, value in constants]
    for structure, size, members in structures:
        claims.append(f"sizeof({structure}) == {size}")
        offsets = re.findall(r"`(\w+)` (\d+)", members)
        claims += [f"offsetof({structure}, {member}) == {at}" for member, at in offsets]
    source = tmp_path / "claims.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <vshmem.h>\n"
        + "".join(f'_Static_assert({claim}, "{claim}");\n' for claim in claims)
    )
    subprocess.run(["cc", "-fsyntax-only", f"-I{ROOT}/include", source], check=True)
