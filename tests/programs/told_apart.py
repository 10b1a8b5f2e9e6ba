"""Whether `vshmem ipcs --json` tells processes of containers apart that both have the pid 1.

told_apart.py JSON ALONE    the containers are called one and two; ALONE is a process of none
"""

import json
import sys

with open(sys.argv[1]) as file:
    (pool,) = json.load(file)["pools"]
by_name = {process["name"]: process for process in pool["processes"]}
one, two = by_name["1@one"], by_name["1@two"]
assert (one["pid"], one["hostname"], one["kernel"]) == (1, "one", two["kernel"]), one
assert one["namespace"] != two["namespace"], (one, two)
assert len({one["pid_here"], two["pid_here"], int(sys.argv[2])}) == 3, (one, two)
for process in [one, two]:
    with open(f"/proc/{process['pid_here']}/comm") as file:
        assert file.read() == "perl\n", process
(queue,) = pool["queues"]
assert queue["sender"] == two, queue
assert queue["receiver"] is None, queue
