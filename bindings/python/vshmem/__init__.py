"""Pools of Vshmem: segments, barriers and reductions between processes, containers and machines.

Calls go to the process's current pool: the one that VSHMEM_POOL named when this module was
imported, until a Pool is used. The C library libvshmem.so.1 does the work.
"""

from ._barrier import Barrier
from ._library import PartyDiedError, library_version
from ._pool import Pool
from ._segment import IPC_PRIVATE, Segment

__version__ = "0.2.0"

__all__ = ["IPC_PRIVATE", "Barrier", "PartyDiedError", "Pool", "Segment", "library_version"]
