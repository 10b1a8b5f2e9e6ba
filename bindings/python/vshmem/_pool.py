"""Pools, and which of them calls go to."""

import contextlib
import os
import warnings
from typing import NoReturn, SupportsIndex

from ._library import calls, checked, failure, library, whole


def _path(name: str | os.PathLike[str]) -> bytes:
    path = os.fsencode(name)
    if b"\0" in path:
        raise ValueError("embedded null byte in a pool's name")
    return path


class Pool:
    """A pool that is open.

    A process has one current pool, for all its threads, and calls go there. A with statement uses
    a pool, and closes it at the end::

        with vshmem.Pool.open("work"):
            segment = vshmem.Segment.get(0x42)

    Up to seven pools can be open besides that of the environment.
    """

    def __init__(self) -> None:
        """Refuse: there are Pool.create, Pool.open, Pool.default and Pool.current."""
        raise TypeError("use Pool.create, Pool.open, Pool.default or Pool.current")

    @classmethod
    def _of(cls, name: str | None, handle: int | None) -> "Pool":
        pool = cls.__new__(cls)
        pool._name, pool._handle, pool._before = name, handle, None
        return pool

    _name: str | None
    _handle: int | None
    _before: "Pool | None"

    @classmethod
    def create(
        cls, name: str | os.PathLike[str], size: SupportsIndex = 0, *, mode: SupportsIndex = 0o600
    ) -> "Pool":
        """Make a local pool, given by name or path, and open it.

        It has size bytes (0: 1 GiB, less on a small file system), which only take memory as they
        are used.
        FileExistsError: there is one already.
        """
        bytes_, permissions = whole(size, "size", 0, 2**64 - 1), whole(mode, "mode", 0, 0o7777)
        with calls:
            checked(library.vshm_pool_create(_path(name), bytes_, permissions))
        return cls.open(name)

    @classmethod
    def open(cls, name: str | os.PathLike[str]) -> "Pool":
        """Open a pool that exists, by name or path. Calls go there after use().

        FileNotFoundError: there is none.
        """
        path = _path(name)
        with calls:
            handle: int | None = library.vshm_pool_open(path)
            if handle is None:
                raise failure()
        return cls._of(os.fsdecode(path), handle)

    @classmethod
    def default(cls) -> "Pool":
        """Return the pool that VSHMEM_POOL named when this module was imported."""
        return _DEFAULT

    @classmethod
    def current(cls) -> "Pool":
        """Return the pool that calls go to now."""
        return _current

    @property
    def name(self) -> str | None:
        """The name or path by which it was opened; None for the pool of the environment."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle is None and self is not _DEFAULT

    def use(self) -> None:
        """Make this the process's current pool, for all its threads."""
        global _current
        with calls:
            if self.closed:
                raise ValueError(f"{self} is closed")
            checked(library.vshm_pool_use(self._handle))
            _current = self

    def close(self) -> None:
        """Close the pool; SEM_UNDO adjustments of this process in it are undone.

        OSError (EBUSY): it is the current pool, or segments or barriers of it are attached.
        Closing twice does nothing, nor does closing the pool of the environment.
        """
        with calls:
            if self._handle is not None:
                checked(library.vshm_pool_close(self._handle))
                self._handle = None

    def __enter__(self) -> "Pool":
        """Make it the current pool until the end of the block."""
        with calls:
            if self._before is not None:
                raise RuntimeError(f"{self} is in use by a with statement already")
            before = _current
            self.use()
            self._before = before
        return self

    def __exit__(self, *_: object) -> None:
        """Make the pool current that was so before, and close this one."""
        with calls:
            before, self._before = self._before, None
            if _current is self:
                (_DEFAULT if before is None or before.closed else before).use()
        if _current is not self:
            self.close()

    def __repr__(self) -> str:
        """Show the name."""
        return "<vshmem.Pool of the environment>" if self is _DEFAULT else f"<Pool {self._name!r}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: an open pool means nothing elsewhere."""
        raise TypeError("a Pool can't be pickled or copied; open it by its name")

    def __del__(self) -> None:
        """Close what was forgotten."""
        if getattr(self, "_handle", None) is not None:
            warnings.warn(f"unclosed {self}", ResourceWarning, source=self, stacklevel=2)
            with contextlib.suppress(OSError):
                self.close()


_DEFAULT = Pool._of(None, None)
_current = _DEFAULT


def must_be_current(pool: Pool, what: object) -> None:
    """Ids mean another thing in another pool."""
    if pool is not _current:
        raise ValueError(f"{what} belongs to {pool}, which is not the current pool now; use it")
