"""The programs in docs/ffi.md and the Python module's README do what the text says."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VSHMEM = os.environ["VSHMEM_BIN"]


def programs(page: str, language: str) -> list[str]:
    """Take the programs out of a page."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder with the pool of the environment; "work" is another one's name."""
    folder = Path(tempfile.mkdtemp(prefix="vshmem-bindings."))
    monkeypatch.setenv("VSHMEM_POOL", str(folder / "pool"))
    monkeypatch.setenv("VSHMEM_POOL_SIZE", "64M")
    yield folder
    shutil.rmtree(folder)


def output(*command: str | Path) -> str:
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    return run.stdout


def run_python(source: str, pool: Path, *options: str) -> str:
    file = pool / "program.py"
    file.write_text(source)
    return output(VSHMEM, "run", "--local", *options, "--", sys.executable, file)


def test_ctypes(pool: Path) -> None:
    (program,) = programs("docs/ffi.md", "python")
    expected = "by ctypes\nvshm_msgget: no IPC object has this key\n"
    assert run_python(program, pool) == expected
    # And where the library is not preloaded.
    assert output(sys.executable, "-c", program) == expected


@pytest.mark.skipif(
    subprocess.run(["php", "-m"], capture_output=True, text=True).stdout.find("FFI") < 0
    if shutil.which("php")
    else True,
    reason="no php with FFI; 'apt-get install php-cli' brings it",
)
def test_php(pool: Path) -> None:
    (program,) = programs("docs/ffi.md", "php")
    file = pool / "program.php"
    file.write_text(program)
    said = output("php", "-d", "ffi.enable=1", file)
    assert said == "1.5 2.5\nvshm_barrier_remove: no IPC object has this key\n"


def test_readme_sum(pool: Path) -> None:
    program, *_ = programs("bindings/python/README.md", "python")
    assert run_python(program, pool, "-n", "4").count("[10. 10. 10.]") == 4


def test_readme_segment_and_pools(pool: Path) -> None:
    _, segment, pools, _ = programs("bindings/python/README.md", "python")
    assert run_python(segment, pool) == ""
    assert run_python(pools.replace('"work"', repr(str(pool / "work"))), pool) == ""


@pytest.mark.skipif(
    importlib.util.find_spec("sysv_ipc") is None, reason="the module sysv_ipc is not installed"
)
def test_readme_sysv_ipc(pool: Path) -> None:
    *_, both = programs("bindings/python/README.md", "python")
    assert run_python(both, pool) == "from sysv_ipc\n"
