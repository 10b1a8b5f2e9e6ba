"""A pool for the tests, and children that must end well."""

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from itertools import count

import pytest

# Read when the module is imported.
FOLDER = tempfile.mkdtemp(prefix="vshmem-bindings.")
os.environ["VSHMEM_POOL"] = f"{FOLDER}/pool"
os.environ["VSHMEM_POOL_SIZE"] = "64M"
KEYS = count(0x62000)


def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture
def key() -> int:
    """Give a key that no other test uses."""
    return next(KEYS)


@pytest.fixture
def folder() -> Iterator[str]:
    """Give a folder for pools, which are sparse, on the file system of the others."""
    path = tempfile.mkdtemp(dir=FOLDER)
    yield path
    shutil.rmtree(path)


def child(work: Callable[[], object]) -> int:
    """Fork, and do something in the child."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def ended(*pids: int) -> None:
    """Wait for children that must succeed."""
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0 for _ in pids]


def python(code: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run another interpreter to its end."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
