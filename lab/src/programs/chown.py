"""chown.py SECONDS: changes a file's owner for so long; prints the nanoseconds of each change."""

import os
import sys
import time

with open("owned", "w"):
    pass
end, begun = time.monotonic_ns() + int(float(sys.argv[1]) * 1e9), time.monotonic_ns()
changes = 0
while time.monotonic_ns() < end:
    for owner in range(1, 101):
        os.chown("owned", owner, owner)
    changes += 100
if os.stat("owned").st_uid != 100:
    sys.exit("chown.py: the file has another owner than it was given")
print(f"{(time.monotonic_ns() - begun) / changes:.1f}")
