"""The files of what Python programs of the tests import."""

import ctypes
import encodings.ascii
import encodings.utf_8
import os
import struct
import sys
import time

imported = ctypes, encodings.ascii, encodings.utf_8, os, struct, time
for name, module in list(sys.modules.items()):
    if name != "__main__":
        print(getattr(module, "__file__", None) or "")
# Looked for only now, as it would bring much else.
import sysconfig  # noqa: E402

print(sysconfig.__file__)
