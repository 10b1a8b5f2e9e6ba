"""block.py FILE OFFSET VALUE: changes a word of the block before a pool, and its checksum."""

import struct
import sys

with open(sys.argv[1], "r+b") as pool:
    pool.seek(4096)
    block = bytearray(pool.read(4096))
    struct.pack_into("<I", block, int(sys.argv[2]), int(sys.argv[3]))
    block[4088:] = bytes(8)
    low = high = 0
    for (word,) in struct.iter_unpack("<I", block):
        low = (low + word) & 0xFFFFFFFF
        high = (high + low) & 0xFFFFFFFF
    struct.pack_into("<Q", block, 4088, high << 32 | low)
    pool.seek(4096)
    pool.write(block)
