"""Receives what send.pl has sent, the largest first, and removes the queue."""

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
queue = libc.msgget(0x1234, 0o1600)
assert queue >= 0, ctypes.get_errno()
buffer = ctypes.create_string_buffer(8 + 70000)
for size in (65536, 1000, 5):
    got = libc.msgrcv(queue, buffer, 70000, ctypes.c_long(size), 0)
    assert got == size, (got, ctypes.get_errno())
    assert buffer.raw[8 : 8 + got] == bytes([65 + size % 26]) * size
    print(got)
assert libc.msgctl(queue, 0, None) == 0
