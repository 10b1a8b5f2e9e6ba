"""Barriers, and reductions over their parties."""

import ctypes
import errno
import math
import os
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeAlias, cast

from ._library import (
    Timespec,
    calls,
    checked,
    failure,
    key_of,
    library,
    whole,
)
from ._pool import Pool

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Values: TypeAlias = (
        array[float] | array[int] | memoryview[Any] | NDArray[numpy.float64] | NDArray[numpy.int64]
    )

# As long as Python's signal handlers wait for a call to return.
_SLICE = 0.1
# How many values a step of a reduction takes; all parties must cut arrays alike.
_CHUNK = 2048
_SUM, _MIN, _MAX = 0, 1, 2


def _deadline(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not timeout >= 0:
        raise ValueError(f"timeout must not be negative: {timeout}")
    return time.monotonic() + timeout


def _reducer(values: "Values") -> tuple[Any, Any, int]:
    """Return the function for an array's type, its memory, and how many values it has."""
    view = memoryview(cast(Any, values))  # mypy: numpy's stubs know buffers from 3.12 on
    kind = view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>")
    if kind == "d":
        function = library.vshm_reduce_double
    elif kind in ("q", "l") and view.itemsize == 8:
        function = library.vshm_reduce_int64
    else:
        raise TypeError(
            "values must be 64-bit floats or signed 64-bit integers in this machine's byte order, "
            f"not of the format {view.format!r}"
        )
    if view.readonly:
        raise ValueError("the array is read-only")
    if not view.c_contiguous:
        raise ValueError("the array is not contiguous")
    if view.nbytes == 0:
        return function, (ctypes.c_ubyte * 8)(), 0
    # As long as this lives, the array can't be resized.
    return function, (ctypes.c_ubyte * view.nbytes).from_buffer(view), view.nbytes // 8


class Barrier:
    """A party's place at a barrier of the current pool.

    Parties are processes or threads on any of the machines, 480 at the most; each opens the
    barrier itself::

        with vshmem.Barrier(0x42, parties=4) as barrier:
            barrier.wait()

    The barrier itself stays in the pool until Barrier.remove(key).
    """

    def __init__(self, key: SupportsIndex, parties: SupportsIndex) -> None:
        """Find or make the barrier of that key, and take a seat.

        OSError (EBUSY): all parties are there. OSError (EINVAL): the key is something else's, or
        the others expect another number of parties.
        """
        self._handle: int | None = None
        self._key, self._parties = key_of(key), whole(parties, "parties", 1, 2**32 - 1)
        with calls:
            handle: int | None = library.vshm_barrier_open(self._key, self._parties)
            if handle is None:
                raise failure()
            self._seat: int = library.vshm_barrier_seat(handle)
            self._handle, self._pool, self._process = handle, Pool.current(), os.getpid()
        self._in_use = threading.Lock()
        self._in_step = True

    @staticmethod
    def remove(key: SupportsIndex) -> None:
        """Remove the barrier of that key; those at it go on, new parties find a new one."""
        number = key_of(key)
        with calls:
            checked(library.vshm_barrier_remove(number))

    @property
    def seat(self) -> int:
        """This party's number, from 0 on; unlike any other party's."""
        return self._seat

    @property
    def parties(self) -> int:
        """How many take part."""
        return self._parties

    @property
    def closed(self) -> bool:
        """Whether the seat was given up."""
        return self._handle is None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all parties do; True for one of them, False for the others.

        What a party wrote to shared memory before is seen by all afterwards. TimeoutError: timeout
        seconds have passed. PartyDiedError: another one has died. After these errors this party has
        not arrived; after ctrl-C it has not, unless the wait was just over.
        """
        deadline = _deadline(timeout)
        handle = self._take()
        try:
            return self._until(deadline, partial(library.vshm_barrier_wait, handle)) == 1
        finally:
            self._in_use.release()

    def sum(self, values: "Values", timeout: float | None = None) -> None:
        """Replace each value by the sum of all parties' values at its place; integers wrap around.

        All parties call the same method with an array of the same type and length, and get the
        same bits. Arrays are numpy's or array.array's, of 64-bit floats or signed integers, or
        memoryviews of such. Errors are those of wait(); afterwards the values are undefined.
        """
        self._reduce(values, _SUM, timeout)

    def min(self, values: "Values", timeout: float | None = None) -> None:
        """Replace each value by the least of all parties' values; as sum(). NaN loses."""
        self._reduce(values, _MIN, timeout)

    def max(self, values: "Values", timeout: float | None = None) -> None:
        """Replace each value by the greatest of all parties' values; as sum(). NaN loses."""
        self._reduce(values, _MAX, timeout)

    def _reduce(self, values: "Values", operation: int, timeout: float | None) -> None:
        deadline = _deadline(timeout)
        function, memory, count = _reducer(values)
        address = ctypes.addressof(memory)
        handle = self._take()
        try:
            # Interrupted after the first step, the others would take it for done.
            self._in_step = count <= _CHUNK
            for start in range(0, max(count, 1), _CHUNK):
                at, n = address + start * 8, min(_CHUNK, count - start)
                self._until(deadline, partial(function, handle, at, n, operation), start == 0)
            self._in_step = True
        finally:
            # A traceback must not keep the array from being resized.
            del memory
            self._in_use.release()

    def _until(
        self, deadline: float, call: Callable[[Any], int], still_in_step: bool = True
    ) -> int:
        """Make a call that waits, in slices, between which signal handlers of Python run.

        After a slice the caller has not arrived, so the call can be made again. What a handler
        raises leaves open whether it has.
        """
        while True:
            left = min(max(deadline - time.monotonic(), 0.0), _SLICE)
            result = call(ctypes.byref(Timespec(0, int(left * 1e9))))
            if result >= 0:
                return result
            if ctypes.get_errno() != errno.ETIMEDOUT or time.monotonic() >= deadline:
                self._in_step = still_in_step
                raise failure()

    def _take(self) -> int:
        """Return the handle, for the calling thread alone."""
        if self._handle is not None and self._process != os.getpid():
            raise RuntimeError("the barrier was opened before a fork; the child opens its own")
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("the barrier is in use; each thread opens its own")
        handle = self._handle
        if handle is None or not self._in_step:
            self._in_use.release()
            if handle is None:
                raise ValueError("the barrier is closed")
            raise RuntimeError(
                "a reduction failed halfway, so the parties may be out of step: "
                "close and remove the barrier, and open another"
            )
        return handle

    def close(self) -> None:
        """Give the seat up. Closing twice does nothing."""
        # In a child, a thread that it does not have may have held the lock.
        alone = self._process == os.getpid()
        if alone and not self._in_use.acquire(blocking=False):
            raise RuntimeError("the barrier is in use by another thread")
        try:
            with calls:
                if self._handle is not None:
                    checked(library.vshm_barrier_close(self._handle))
                    self._handle = None
        finally:
            if alone:
                self._in_use.release()

    def __enter__(self) -> "Barrier":
        """Give the barrier."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show the key and the party."""
        return f"<Barrier {self._key:#x}, seat {self._seat} of {self._parties}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: each party has a seat of its own."""
        raise TypeError("a Barrier can't be pickled or copied; open it by its key")

    def __del__(self) -> None:
        """Give up a seat that was forgotten."""
        if getattr(self, "_handle", None) is not None:
            warnings.warn(f"unclosed {self}", ResourceWarning, source=self, stacklevel=2)
            self.close()
