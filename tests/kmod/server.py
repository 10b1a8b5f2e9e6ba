#!/usr/bin/env python3
"""An ivshmem-server, as small as QEMU's docs/specs/ivshmem-spec lets it be.

    server.py SOCKET MEMORY-FILE SIZE VECTORS

Gives peer ids to the machines that connect, from 0, and sends each the others' eventfds. It is
independent of the project's back end, so that the driver is tested against a second
implementation of the protocol.
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
    """The peers, each with its connection and its eventfds."""

    def __init__(self, memory, vectors):
        self.memory = memory
        self.vectors = vectors
        self.peers = {}

    def join(self, connection):
        """Greets a new peer, and sends it the others' eventfds, and its own to all."""
        peer = next(n for n in range(65536) if n not in self.peers)
        events = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(self.vectors)]
        send(connection, PROTOCOL_VERSION)
        send(connection, peer)
        send(connection, -1, self.memory)
        for other, (_, theirs) in self.peers.items():
            for event in theirs:
                send(connection, other, event)
        for other, _ in self.peers.values():
            for event in events:
                send(other, peer, event)
        for event in events:
            send(connection, peer, event)
        self.peers[peer] = (connection, events)

    def leave(self, connection):
        """Tells the others that a peer is gone."""
        peer = next(n for n, (c, _) in self.peers.items() if c is connection)
        _, events = self.peers.pop(peer)
        for event in events:
            os.close(event)
        for other, _ in self.peers.values():
            send(other, peer)


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
