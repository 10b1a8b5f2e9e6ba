"""Records a QEMU that was started otherwise as a cluster of one machine.

take_for_cluster.py CLUSTERS SOURCE NAME PID    the record is made from that of the cluster SOURCE
"""

import json
import sys

clusters, source, name, pid = sys.argv[1:]
with open(f"{clusters}/{source}/cluster.json") as file:
    record = json.load(file)
record.update(name=name, channels=1, doorbell=False, pool="/dev/shm/none")
with open(f"/proc/{pid}/stat") as file:
    started = file.read().rsplit(")", 1)[1].split()[19]
record["machines"][0].update(pools=[], runs={"pid": int(pid), "started": int(started)})
with open(f"{clusters}/{name}/cluster.json", "w") as file:
    json.dump(record, file)
