"""Tells QEMU's monitor at SOCKET each ORDER, a name or an object; prints the last answer."""

import json
import socket
import sys

monitor = socket.socket(socket.AF_UNIX)
monitor.connect(sys.argv[1])
lines = monitor.makefile("rw")
lines.readline()
answer = {}
for order in ["qmp_capabilities", *sys.argv[2:]]:
    order = json.loads(order) if order.startswith("{") else {"execute": order}
    print(json.dumps(order), file=lines, flush=True)
    while "event" in (answer := json.loads(lines.readline())):
        pass
    assert "return" in answer, answer
print(json.dumps(answer["return"]))
