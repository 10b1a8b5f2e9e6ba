"""Receives lines from a System V queue with libc's calls, and nothing else; removes the queue."""

import ctypes
import sys

IPC_CREAT, IPC_RMID = 0o1000, 0


class Message(ctypes.Structure):
    """What msgrcv(2) fills."""

    _fields_ = [("type", ctypes.c_long), ("text", ctypes.c_char * 512)]


def failed(call: str) -> SystemExit:
    """The error of a call, as a sentence."""
    return SystemExit(f"{call} failed with errno {ctypes.get_errno()}")


def main() -> None:
    """Prints what comes, until an empty message."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.msgrcv.restype = ctypes.c_ssize_t
    libc.msgrcv.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_long,
        ctypes.c_int,
    ]
    queue = libc.msgget(int(sys.argv[1], 16), IPC_CREAT | 0o600)
    if queue < 0:
        raise failed("msgget")
    message = Message()
    while True:
        size = libc.msgrcv(queue, ctypes.byref(message), 512, 0, 0)
        if size < 0:
            raise failed("msgrcv")
        if size == 0:
            break
        print(f"python received message {message.type}: {message.text[:size].decode()}", flush=True)
    if libc.msgctl(queue, IPC_RMID, None) != 0:
        raise failed("msgctl")


main()
