"""How the library is found, what its errors become, and how the interpreter ends."""

import errno
import os
import pickle
import threading
from importlib.metadata import version

import pytest
import vshmem
from conftest import child, ended, python
from vshmem import _library


def test_versions_agree() -> None:
    assert vshmem.__version__ == version("vshmem") == vshmem.library_version()


def test_a_library_that_is_not_there() -> None:
    run = python("import vshmem", VSHMEM_LIB="/nowhere/libvshmem.so")
    assert run.returncode == 1
    assert "ImportError: Vshmem's library can't be loaded: /nowhere/libvshmem.so" in run.stderr
    assert "libvshmem1" in run.stderr and "VSHMEM_LIB" in run.stderr


def test_a_library_that_is_another_one() -> None:
    run = python("import vshmem", VSHMEM_LIB="libm.so.6")
    assert run.returncode == 1 and "vshm_version is missing in libm.so.6" in run.stderr


def test_the_preloaded_library_is_used() -> None:
    library = os.environ.get("VSHMEM_LIB", "libvshmem.so.1")
    code = """
import vshmem
files = {line.split()[-1] for line in open("/proc/self/maps") if "libvshmem" in line}
print(len(files))
"""
    run = python(code, LD_PRELOAD=library, VSHMEM_LIB="/nowhere/libvshmem.so")
    assert (run.stdout, run.stderr) == ("1\n", "")


def test_errors_have_pythons_types_and_a_sentence(key: int) -> None:
    with pytest.raises(FileNotFoundError, match="vshm_shmget: no IPC object has this key"):
        vshmem.Segment.get(key)
    vshmem.Segment.get(key, 1, create=True)
    with pytest.raises(FileExistsError) as caught:
        vshmem.Segment.get(key, 1, exclusive=True)
    assert caught.value.errno == errno.EEXIST
    assert str(caught.value.strerror).startswith("vshm_shmget: ")
    vshmem.Segment.get(key).remove()


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_may_not(key: int) -> None:
    segment = vshmem.Segment.get(key, 100, create=True)

    def other() -> None:
        os.setuid(65534)
        with pytest.raises(PermissionError):
            segment.attach()

    ended(child(other))
    segment.remove()


def test_numbers_are_not_cut_off(key: int) -> None:
    for wrong in (2**32, -(2**31) - 1):
        with pytest.raises(ValueError, match="a key must be"):
            vshmem.Segment.get(wrong)
        with pytest.raises(ValueError, match="a key must be"):
            vshmem.Barrier(wrong, 1)
    with pytest.raises(ValueError, match="parties"):
        vshmem.Barrier(key, 2**32 + 1)
    with pytest.raises(ValueError, match="size"):
        vshmem.Segment.get(key, -1, create=True)
    with pytest.raises(OSError, match="vshm_shmget"):
        vshmem.Segment.get(key, 2**62, create=True)
    with pytest.raises(TypeError):
        vshmem.Segment.get(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        vshmem.Segment.get("1")  # type: ignore[arg-type]


def test_keys_may_be_written_without_a_sign() -> None:
    one = vshmem.Segment.get(0xFEDCBA98, 1, create=True)
    assert vshmem.Segment.get(0xFEDCBA98 - 2**32).id == one.id
    one.remove()


def test_nothing_is_pickled(key: int) -> None:
    segment, barrier = vshmem.Segment.get(key, 1, create=True), vshmem.Barrier(key + 2**20, 1)
    for thing in (segment, barrier, vshmem.Pool.default()):
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(thing)
    segment.remove()
    barrier.close()
    vshmem.Barrier.remove(key + 2**20)


def test_errors_of_threads_are_apart(key: int) -> None:
    def other() -> None:
        with pytest.raises(OSError, match="vshm_barrier_remove"):
            vshmem.Barrier.remove(key)

    with pytest.raises(FileNotFoundError, match="vshm_shmget"):
        with _library.calls:
            assert _library.library.vshm_shmget(key, 0, 0) == -1
            thread = threading.Thread(target=lambda: _library.library.vshm_barrier_remove(key))
            thread.start()
            thread.join()
            raise _library.failure()
    other()


def test_the_interpreter_ends_whatever_is_open(key: int) -> None:
    code = f"""
import threading, vshmem
segment = vshmem.Segment.get({key}, 100000, create=True)
segment.attach()
view = segment.buffer
barrier, other = vshmem.Barrier({key + 2**20}, 2), vshmem.Barrier({key + 2**20}, 2)
pool = vshmem.Pool.create("/dev/shm/vshmem-bindings-" + str({os.getpid()}), 1 << 20)
pool.use()
threading.Thread(target=other.wait, daemon=True).start()
def write():
    while True:
        view[5] = 1
threading.Thread(target=write, daemon=True).start()
segment.itself = segment
"""
    run = python(code)
    os.unlink(f"/dev/shm/vshmem-bindings-{os.getpid()}")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    vshmem.Segment.get(key).remove()
    vshmem.Barrier.remove(key + 2**20)


def test_without_numpy(key: int) -> None:
    code = f"""
import sys
sys.modules["numpy"] = None
import array, vshmem
with vshmem.Segment.get({key}, 80, create=True) as segment, vshmem.Barrier({key + 1}, 1) as one:
    segment.buffer[:8] = b"no numpy"
    values = array.array("d", [2.0])
    one.sum(values)
    segment.array()
"""
    run = python(code)
    assert run.stderr.splitlines()[-1].startswith("ImportError: Segment.array needs numpy")
    vshmem.Segment.get(key).remove()
    vshmem.Barrier.remove(key + 1)
