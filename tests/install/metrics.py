"""metrics.py SOCKET: what the back end answers to who asks for its metrics, as Prometheus does."""

import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
print(b"".join(iter(lambda: connection.recv(4096), b"")).decode())
