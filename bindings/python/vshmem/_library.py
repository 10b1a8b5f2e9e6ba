"""The C library: where it is, the types of its functions, and what its errors become."""

import ctypes
import errno
import operator
import os
import threading
from typing import Any, SupportsIndex

SONAME = "libvshmem.so.1"


class PartyDiedError(OSError):
    """Another party of the barrier has died (EOWNERDEAD).

    Its seat goes to the party that opens the barrier next.
    """


class Timespec(ctypes.Structure):
    """C's struct timespec."""

    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def _find() -> ctypes.CDLL:
    # Preloaded or linked: a second copy would be another process to the pool.
    program = ctypes.CDLL(None, use_errno=True)
    if hasattr(program, "vshm_version"):
        return program
    name = os.environ.get("VSHMEM_LIB") or SONAME
    try:
        return ctypes.CDLL(name, use_errno=True)
    except OSError as error:
        raise ImportError(
            f"Vshmem's library can't be loaded: {error}. Install it (Debian: libvshmem1; or "
            "'make install' in Vshmem's source), or set VSHMEM_LIB to its path.",
            name="vshmem",
        ) from None


_REDUCE = (
    ctypes.c_int,
    [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.POINTER(Timespec),
    ],
)

# Result and arguments of each function that is used here, as in vshmem.h.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "vshm_version": (ctypes.c_char_p, []),
    "vshm_last_error": (ctypes.c_char_p, []),
    "vshm_shmget": (ctypes.c_int, [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]),
    "vshm_shmat": (ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]),
    "vshm_shmdt": (ctypes.c_int, [ctypes.c_void_p]),
    "vshm_shmctl": (ctypes.c_int, [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]),
    "vshm_pool_create": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint]),
    "vshm_pool_open": (ctypes.c_void_p, [ctypes.c_char_p]),
    "vshm_pool_use": (ctypes.c_int, [ctypes.c_void_p]),
    "vshm_pool_close": (ctypes.c_int, [ctypes.c_void_p]),
    "vshm_barrier_open": (ctypes.c_void_p, [ctypes.c_int, ctypes.c_uint]),
    "vshm_barrier_seat": (ctypes.c_int, [ctypes.c_void_p]),
    "vshm_barrier_wait": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(Timespec)]),
    "vshm_barrier_close": (ctypes.c_int, [ctypes.c_void_p]),
    "vshm_barrier_remove": (ctypes.c_int, [ctypes.c_int]),
    "vshm_reduce_double": _REDUCE,
    "vshm_reduce_int64": _REDUCE,
}


def _load() -> ctypes.CDLL:
    found = _find()
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise ImportError(
                f"{name} is missing in {found._name}: this is no libvshmem, or too old a one.",
                name="vshmem",
            ) from None
        function.restype, function.argtypes = result, arguments
    return found


library = _load()

# No pool is closed while another thread is inside of a call on it. Waits don't hold this lock: a
# barrier is attached, and keeps its pool open.
calls = threading.RLock()
os.register_at_fork(
    before=calls.acquire, after_in_parent=calls.release, after_in_child=calls.release
)


def library_version() -> str:
    """Tell the version of the C library, as in "0.1.0"."""
    version: bytes = library.vshm_version()
    return version.decode()


def failure() -> OSError:
    """Make an exception of the calling thread's last failing call."""
    code = ctypes.get_errno()
    sentence = library.vshm_last_error().decode(errors="replace") or os.strerror(code)
    return (PartyDiedError if code == errno.EOWNERDEAD else OSError)(code, sentence)


def checked(result: int) -> int:
    """Return what a call returned that says -1 on failure."""
    if result < 0:
        raise failure()
    return result


def whole(value: SupportsIndex, what: str, lowest: int, highest: int) -> int:
    """Return an integer that fits; ctypes would cut it off."""
    number = operator.index(value)
    if not lowest <= number <= highest:
        raise ValueError(f"{what} must be between {lowest} and {highest}, not {number}")
    return number


def key_of(value: SupportsIndex) -> int:
    """Return a key as C's key_t; programs that print keys write them without a sign."""
    return whole(value, "a key", -(2**31), 2**32 - 1)
