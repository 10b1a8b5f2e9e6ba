"""Print how many System V IPC objects the calling process can see.

Asks the C library's shmctl, semctl and msgctl with SHM_INFO, SEM_INFO and
MSG_INFO, whose replies hold the number in use, so that under the interposer
Vshmem answers. `ipcs` would not do: it reads /proc/sysvipc.
"""

import ctypes
import os
import sys

SHM_INFO, SEM_INFO, MSG_INFO = 14, 19, 12

libc = ctypes.CDLL(None, use_errno=True)
reply = (ctypes.c_int * 64)()


def in_use(name, returned, field):
    """The given int of the reply, or the end of the program if the call failed."""
    if returned < 0:
        sys.exit(f"{name}: {os.strerror(ctypes.get_errno())}")
    return reply[field]


# struct shm_info starts with used_ids; seminfo.semusz and msginfo.msgpool hold the same.
segments = in_use("shmctl", libc.shmctl(0, SHM_INFO, reply), 0)
sets = in_use("semctl", libc.semctl(0, 0, SEM_INFO, reply), 7)
queues = in_use("msgctl", libc.msgctl(0, MSG_INFO, reply), 0)
print(f"segments {segments}, sets {sets}, queues {queues}")
