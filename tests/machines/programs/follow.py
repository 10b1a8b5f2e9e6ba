"""Opens a file that others see, waits for what they append, and writes another by a mapping."""

import mmap
import os
import sys
import time

path = sys.argv[1]
followed = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
os.fchmod(followed, 0o666)
print("opened", end=", ", flush=True)
end = time.monotonic() + 20
said = b""
while not said.endswith(b"\n") and time.monotonic() < end:
    said += os.read(followed, 100)
    time.sleep(0.05)
print(said.decode().strip(), end=", ")
text = b"by a mapping"
mapped = os.open(path + ".mapped", os.O_RDWR | os.O_CREAT, 0o666)
os.ftruncate(mapped, len(text))
with mmap.mmap(mapped, len(text)) as pages:
    pages[:] = text
    pages.flush()
print("mapped")
