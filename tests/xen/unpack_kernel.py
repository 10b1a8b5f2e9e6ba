"""unpack_kernel.py VMLINUZ VMLINUX: a kernel without the program that decompresses it."""

import lzma
import sys

compressed, unpacked = sys.argv[1:]
with open(compressed, "rb") as file:
    image = file.read()
with open(unpacked, "wb") as file:
    file.write(lzma.LZMADecompressor().decompress(image[image.index(b"\xfd7zXZ\0") :]))
