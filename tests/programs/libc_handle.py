"""Use a segment, a semaphore and a queue through ctypes and the handle of libc.so.6.

Started without arguments it makes them, and starts itself as a second process,
which finds them by their key.
"""

import ctypes
import os
import subprocess
import sys

IPC_CREAT, IPC_EXCL, IPC_NOWAIT, IPC_RMID, GETVAL = 0o1000, 0o2000, 0o4000, 0, 12
ENOENT, EAGAIN = 2, 11
SYS_MSGGET = {"x86_64": 68, "aarch64": 186}[os.uname().machine]
TEXT = b"from one to the other"

libc = ctypes.CDLL("libc.so.6", use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.syscall.restype = ctypes.c_long


class Sembuf(ctypes.Structure):
    """C's struct sembuf."""

    _fields_ = [("num", ctypes.c_ushort), ("op", ctypes.c_short), ("flg", ctypes.c_short)]


class Message(ctypes.Structure):
    """A message with room for the text."""

    _fields_ = [("type", ctypes.c_long), ("text", ctypes.c_char * 64)]


def check(holds, what):
    """Say that something holds, or end the program."""
    if not holds:
        sys.exit(f"not ok - {what} (errno {ctypes.get_errno()})")
    print(f"ok - {what}", flush=True)


def fails_with(error, returned, what):
    """The call has failed with this errno."""
    check(returned == -1 and ctypes.get_errno() == error, what)


def operate(semaphores, change, flags=0):
    """Do one operation of semop."""
    return libc.semop(semaphores, ctypes.byref(Sembuf(0, change, flags)), ctypes.c_size_t(1))


def second(key):
    """What the other process does."""
    segment, semaphores = libc.shmget(key, 0, 0), libc.semget(key, 1, 0)
    queue = libc.syscall(ctypes.c_long(SYS_MSGGET), key, 0)
    check(min(segment, semaphores, queue) >= 0, "all three are found by their key")
    memory = libc.shmat(segment, None, 0)
    check(ctypes.string_at(memory, len(TEXT)) == TEXT, "what the first has written")
    check(libc.shmdt(ctypes.c_void_p(memory)) == 0, "shmdt")
    message = Message(5, TEXT)
    check(libc.msgsnd(queue, ctypes.byref(message), ctypes.c_size_t(len(TEXT)), 0) == 0, "msgsnd")
    check(operate(semaphores, 1) == 0, "V")


def first():
    """Make all three, and start the other process."""
    key = os.getpid() | 0x560000
    fails_with(ENOENT, libc.shmget(key, 0, 0), "no segment of that key yet")
    segment = libc.shmget(key, ctypes.c_size_t(4096), IPC_CREAT | IPC_EXCL | 0o600)
    semaphores = libc.semget(key, 1, IPC_CREAT | IPC_EXCL | 0o600)
    queue = libc.msgget(key, IPC_CREAT | IPC_EXCL | 0o600)
    check(min(segment, semaphores, queue) >= 0, "all three are made")
    memory = libc.shmat(segment, None, 0)
    ctypes.memmove(memory, TEXT, len(TEXT))
    fails_with(EAGAIN, operate(semaphores, -1, IPC_NOWAIT), "P would wait")
    other = subprocess.Popen([sys.executable, __file__, str(key)])
    check(operate(semaphores, -1) == 0, "P waits for the other")
    check(other.wait() == 0, "the other process")
    check(libc.semctl(semaphores, 0, GETVAL) == 0, "GETVAL")
    message = Message()
    got = libc.msgrcv(queue, ctypes.byref(message), ctypes.c_size_t(64), ctypes.c_long(5), 0)
    check(got == len(TEXT) and message.text == TEXT, "msgrcv")
    check(libc.shmdt(ctypes.c_void_p(memory)) == 0, "shmdt")
    check(libc.shmctl(segment, IPC_RMID, None) == 0, "the segment is removed")
    check(libc.semctl(semaphores, 0, IPC_RMID) == 0, "the set is removed")
    check(libc.msgctl(queue, IPC_RMID, None) == 0, "the queue is removed")
    fails_with(ENOENT, libc.msgget(key, 0), "and can't be found")


if len(sys.argv) > 1:
    second(int(sys.argv[1]))
else:
    first()
