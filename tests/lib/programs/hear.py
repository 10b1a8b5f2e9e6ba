"""Receives from the queue to which tell.pl sends; prints each message, or why there is none.

hear.py [TIMES]    if that is said, the queue is made if need be, and it is told when it is there
"""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
times = int(sys.argv[1]) if len(sys.argv) > 1 else None
queue = libc.msgget(0x4711, 0o1600 if times else 0)
buffer = ctypes.create_string_buffer(72)
if times:
    print("waits", file=sys.stderr, flush=True)
for _time in range(times or 1):
    size = -1
    if queue >= 0:
        size = libc.msgrcv(queue, buffer, ctypes.c_size_t(64), ctypes.c_long(0), 0)
    text = buffer.raw[8 : 8 + size].decode() if size >= 0 else os.strerror(ctypes.get_errno())
    print(text, flush=True)
