"""Segments: memory that processes share."""

import ctypes
import errno
import math
import operator
import struct
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from ._library import calls, checked, failure, key_of, library, whole
from ._pool import Pool, must_be_current

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

IPC_PRIVATE = 0
"""The key of a segment that only its id names."""

_IPC_CREAT, _IPC_EXCL, _IPC_RMID, _IPC_STAT, _SHM_RDONLY = 0o1000, 0o2000, 0, 2, 0o10000
_FAILED = ctypes.c_void_p(-1).value
# struct shmid_ds of 64-bit glibc.
_SHMID_DS, _SHM_SEGSZ = 112, 48


def _detach(address: int, pool: Pool) -> None:
    """Detach memory of which nothing refers to any more. The pool stays open until then."""
    with calls:
        library.vshm_shmdt(address)


def _forget(memory: object) -> None:
    """Let go of an array's memory, when the array and its views are gone."""


def _mapped(address: int) -> int:
    """Tell how many bytes are mapped from an address on."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split(b" ", 1)[0].split(b"-"))
            if begin <= address < end:
                return end - address
    return 0


class Segment:
    """A segment of the current pool.

    Memory is shared with all that attach it; a with statement attaches it::

        with vshmem.Segment.get(0x42, 8000, create=True) as segment:
            values = segment.array("float64", 1000)

    Arrays and memoryviews of a segment keep it attached, so they are safe to use as long as they
    live; the memory is detached with the last of them.
    """

    def __init__(self, id: SupportsIndex) -> None:
        """Name a segment by its id in the current pool."""
        self._id = whole(id, "an id", 0, 2**31 - 1)
        self._pool = Pool.current()
        # Everything that looks at the memory refers to this object, which detaches when it goes.
        self._memory: ctypes.Array[ctypes.c_ubyte] | None = None
        self._readonly = False

    @classmethod
    def get(
        cls,
        key: SupportsIndex,
        size: SupportsIndex = 0,
        *,
        create: bool = False,
        exclusive: bool = False,
        mode: SupportsIndex = 0o600,
    ) -> "Segment":
        """Find a segment by its key, or make it, as shmget(2) does.

        FileNotFoundError: there is none, and create was not asked for. FileExistsError: there is
        one, and exclusive was asked for. OSError (EINVAL): it is smaller than size.
        """
        flags = whole(mode, "mode", 0, 0o777)
        if create or exclusive:
            flags |= _IPC_CREAT | (_IPC_EXCL if exclusive else 0)
        number, bytes_ = key_of(key), whole(size, "size", 0, 2**63 - 1)
        with calls:
            return cls(checked(library.vshm_shmget(number, bytes_, flags)))

    @property
    def id(self) -> int:
        """The id, which other processes may be told."""
        return self._id

    @property
    def attached(self) -> bool:
        """Whether it is attached by this object."""
        return self._memory is not None

    @property
    def size(self) -> int:
        """The length in bytes, while it is attached."""
        return len(self._attached())

    def _attached(self) -> "ctypes.Array[ctypes.c_ubyte]":
        memory = self._memory
        if memory is None:
            raise ValueError(f"{self} is not attached")
        return memory

    def attach(self, *, readonly: bool = False) -> None:
        """Map the segment. PermissionError: this user may not."""
        with calls:
            if self._memory is not None:
                raise ValueError(f"{self} is attached already")
            must_be_current(self._pool, self)
            address = library.vshm_shmat(self._id, None, _SHM_RDONLY if readonly else 0)
            if address == _FAILED:
                raise failure()
            try:
                memory = (ctypes.c_ubyte * self._told_size(address)).from_address(address)
            except BaseException:
                library.vshm_shmdt(address)
                raise
            # Not at exit, when threads may use the memory still.
            weakref.finalize(memory, _detach, address, self._pool).atexit = False
            self._memory, self._readonly = memory, readonly

    def _told_size(self, address: int) -> int:
        status = ctypes.create_string_buffer(_SHMID_DS)
        checked(library.vshm_shmctl(self._id, _IPC_STAT, status))
        (size,) = struct.unpack_from("N", status, _SHM_SEGSZ)
        # Other members of the pool may write anything there.
        if size > _mapped(address):
            raise OSError(errno.EIDRM, f"{self} was changed while it was attached")
        return int(size)

    def detach(self) -> None:
        """Unmap the segment. BufferError: arrays or memoryviews of it are alive.

        Detaching twice does nothing.
        """
        with calls:
            if self._memory is None:
                return
            memory = weakref.ref(self._memory)
            self._memory = None
            self._memory = memory()
            if self._memory is not None:
                raise BufferError(f"arrays or memoryviews of {self} are alive; it stays attached")

    def remove(self) -> None:
        """Mark the segment to be removed; it goes when the last process detaches it."""
        with calls:
            must_be_current(self._pool, self)
            checked(library.vshm_shmctl(self._id, _IPC_RMID, None))

    @property
    def buffer(self) -> memoryview:
        """The memory as bytes: a new memoryview, which keeps it attached."""
        memory = self._attached()
        view = memoryview(memory).cast("B")
        return view.toreadonly() if self._readonly else view

    def __buffer__(self, flags: int) -> memoryview:
        """Be a buffer, from Python 3.12 on."""
        return self.buffer

    def array(
        self,
        dtype: "DTypeLike" = "float64",
        shape: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
        *,
        offset: SupportsIndex = 0,
    ) -> "NDArray[Any]":
        """Make a numpy array of the memory, from an offset in bytes on; None: as long as fits."""
        try:
            import numpy
        except ImportError:
            raise ImportError(
                "Segment.array needs numpy: pip install 'vshmem[numpy]'", name="numpy"
            ) from None
        view, start, of = self.buffer, whole(offset, "offset", 0, self.size), numpy.dtype(dtype)
        if shape is None:
            shape = (len(view) - start) // max(of.itemsize, 1)
        extents = [operator.index(n) for n in (shape if isinstance(shape, tuple) else (shape,))]
        if min(extents, default=0) < 0:
            raise ValueError(f"shape must not be negative: {shape}")
        array = numpy.frombuffer(view, of, math.prod(extents), start)
        # numpy keeps a memoryview, which a program can reach, and release.
        weakref.finalize(array, _forget, view.obj).atexit = False
        return array.reshape(extents)

    def __enter__(self) -> "Segment":
        """Attach it, if it is not attached."""
        if self._memory is None:
            self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        """Detach it; where arrays or memoryviews of it live, with the last of them."""
        self._memory = None

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Segment {self._id}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: what is attached here is not attached elsewhere."""
        raise TypeError("a Segment can't be pickled or copied; pass its key or id")
