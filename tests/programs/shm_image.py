"""Draw an image that lies in a shared memory segment, read it back into another, compare.

Uses libX11 and libXext, as any X client with MIT-SHM does, and removes each
segment as soon as the server has attached it.
"""

import ctypes
import sys

IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
Z_PIXMAP = 2
ALL_PLANES = ctypes.c_ulong(-1)
WIDTH, HEIGHT, ROUNDS = 640, 480, 20

x11 = ctypes.CDLL("libX11.so.6")
xext = ctypes.CDLL("libXext.so.6")
libc = ctypes.CDLL(None, use_errno=True)


class ShmSegmentInfo(ctypes.Structure):
    """XShmSegmentInfo of <X11/extensions/XShm.h>."""

    _fields_ = [
        ("shmseg", ctypes.c_ulong),
        ("shmid", ctypes.c_int),
        ("shmaddr", ctypes.c_void_p),
        ("read_only", ctypes.c_int),
    ]


class XImage(ctypes.Structure):
    """The first fields of XImage of <X11/Xlib.h>."""

    _fields_ = [
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("xoffset", ctypes.c_int),
        ("format", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("byte_order", ctypes.c_int),
        ("bitmap_unit", ctypes.c_int),
        ("bitmap_bit_order", ctypes.c_int),
        ("bitmap_pad", ctypes.c_int),
        ("depth", ctypes.c_int),
        ("bytes_per_line", ctypes.c_int),
    ]


libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
libc.shmdt.argtypes = [ctypes.c_void_p]
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
for function in (x11.XOpenDisplay, x11.XDefaultVisual, x11.XDefaultGC):
    function.restype = ctypes.c_void_p
x11.XCreatePixmap.restype = x11.XDefaultRootWindow.restype = ctypes.c_ulong
xext.XShmCreateImage.restype = ctypes.POINTER(XImage)


class SharedImage:
    """An image in a segment that the server has attached."""

    def __init__(self, display, visual):
        self.info = ShmSegmentInfo()
        self.image = xext.XShmCreateImage(
            display,
            ctypes.c_void_p(visual),
            24,
            Z_PIXMAP,
            None,
            ctypes.byref(self.info),
            WIDTH,
            HEIGHT,
        )
        self.size = self.image.contents.bytes_per_line * HEIGHT
        self.info.shmid = libc.shmget(IPC_PRIVATE, self.size, IPC_CREAT | 0o600)
        if self.info.shmid < 0:
            sys.exit("shmget failed")
        address = libc.shmat(self.info.shmid, None, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            sys.exit("shmat failed")
        self.info.shmaddr = self.image.contents.data = address
        if not xext.XShmAttach(display, ctypes.byref(self.info)):
            sys.exit("XShmAttach failed")
        x11.XSync(display, 0)
        libc.shmctl(self.info.shmid, IPC_RMID, None)

    def fill(self, content):
        """Write the bytes into the segment."""
        ctypes.memmove(self.info.shmaddr, content, self.size)

    def content(self):
        """Return the segment's bytes."""
        return ctypes.string_at(self.info.shmaddr, self.size)


def pixels(round_number, size):
    """A pattern of its own for each round; the unused byte of each pixel is 0."""
    row = bytearray((round_number * 7 + i * 13 + i // 2560 * 31) % 251 for i in range(size))
    row[3::4] = bytes(len(row[3::4]))
    return bytes(row)


def main():
    display = ctypes.c_void_p(x11.XOpenDisplay(None))
    if not display:
        sys.exit("cannot open the display")
    if not xext.XShmQueryExtension(display):
        sys.exit("the server has no MIT-SHM")
    visual = x11.XDefaultVisual(display, 0)
    gc = ctypes.c_void_p(x11.XDefaultGC(display, 0))
    root = ctypes.c_ulong(x11.XDefaultRootWindow(display))
    pixmap = ctypes.c_ulong(x11.XCreatePixmap(display, root, WIDTH, HEIGHT, 24))
    source, target = SharedImage(display, visual), SharedImage(display, visual)
    for round_number in range(ROUNDS):
        expected = pixels(round_number, source.size)
        source.fill(expected)
        xext.XShmPutImage(display, pixmap, gc, source.image, 0, 0, 0, 0, WIDTH, HEIGHT, 0)
        if not xext.XShmGetImage(display, pixmap, target.image, 0, 0, ALL_PLANES):
            sys.exit("XShmGetImage failed")
        if target.content() != expected:
            sys.exit(f"round {round_number}: the image came back changed")
    for image in (source, target):
        xext.XShmDetach(display, ctypes.byref(image.info))
    x11.XSync(display, 0)
    for image in (source, target):
        libc.shmdt(image.info.shmaddr)
    x11.XCloseDisplay(display)
    print(f"{ROUNDS} images of {WIDTH}x{HEIGHT} there and back")


if __name__ == "__main__":
    main()
