"""A word over the network.

hello.py               waits for it, and prints it
hello.py SERVER TEXT   says it, as soon as the other one is there
"""

import socket
import sys
import time

PORT = 7777
if len(sys.argv) == 1:
    connection = socket.create_server(("", PORT)).accept()[0]
    print(connection.recv(100).decode(), flush=True)
else:
    for _attempt in range(100):
        try:
            connection = socket.create_connection((sys.argv[1], PORT), timeout=5)
            break
        except OSError:
            time.sleep(0.1)
    connection.sendall(sys.argv[2].encode())
