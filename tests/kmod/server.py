#!/usr/bin/env python3
"""An ivshmem-server, as small as QEMU's docs/specs/ivshmem-spec lets it be.

    server.py SOCKET MEMORY-FILE SIZE VECTORS

Gives numbers to the machines that connect, from 0, and tells each of the others' eventfds. It is
written apart from the project's back end, so that the driver is tested against a second reading of
the protocol.
"""

import array
import os
import selectors
import socket
import struct
import sys

PROTOCOL_VERSION = 0


def send(connection, number, descriptor=None):
    """One message: a 64-bit little-endian number, perhaps with a descriptor."""
    ancillary = []
    if descriptor is not None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    connection.sendmsg([struct.pack("<q", number)], ancillary)


class Server:
    """The members, each with its connection and its eventfds."""

    def __init__(self, memory, vectors):
        self.memory = memory
        self.vectors = vectors
        self.members = {}

    def join(self, connection):
        """Greets a new member, tells it of the others and the others of it."""
        number = next(n for n in range(65536) if n not in self.members)
        events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(self.vectors)]
        send(connection, PROTOCOL_VERSION)
        send(connection, number)
        send(connection, -1, self.memory)
        for other, (_, theirs) in self.members.items():
            for event in theirs:
                send(connection, other, event)
        for other, _ in self.members.values():
            for event in events:
                send(other, number, event)
        for event in events:
            send(connection, number, event)
        self.members[number] = (connection, events)

    def leave(self, connection):
        """Tells the others that a member has gone."""
        number = next(n for n, (c, _) in self.members.items() if c is connection)
        _, events = self.members.pop(number)
        for event in events:
            os.close(event)
        for other, _ in self.members.values():
            send(other, number)


def main():
    """Serves until it is killed."""
    path, memory, size, vectors = sys.argv[1:]
    descriptor = os.open(memory, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, int(size))
    server = Server(descriptor, int(vectors))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                server.join(connection)
                selector.register(connection, selectors.EVENT_READ)
            elif not key.fileobj.recv(4096):
                selector.unregister(key.fileobj)
                server.leave(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    main()
