#!/usr/bin/python3
"""What an administrator does with virtual functions of an NVMe drive (nvme virt-mgmt).

nvme.py free FILE           the drive keeps none of its flexible queues and interrupts for itself
nvme.py online FILE NUMBER  this secondary controller gets two queues, an interrupt, and goes online
"""

import fcntl
import struct
import sys

# NVME_IOCTL_ADMIN_CMD, and struct nvme_admin_cmd of <linux/nvme_ioctl.h>.
ADMIN = 0xC0484E41
COMMAND = struct.Struct("=BBHIIIQQII6III")
VIRTUALIZATION = 0x1C
# Actions and kinds of resources.
OF_PRIMARY, OFFLINE, TO_SECONDARY, ONLINE = 1, 7, 8, 9
QUEUES, INTERRUPTS = 0, 1


def manage(drive, action, kind=0, number=0, controller=0):
    words = [controller << 16 | kind << 8 | action, number, 0, 0, 0, 0]
    command = COMMAND.pack(VIRTUALIZATION, 0, 0, 0, 0, 0, 0, 0, 0, 0, *words, 0, 0)
    status = fcntl.ioctl(drive, ADMIN, bytearray(command))
    if status:
        sys.exit(f"the drive refuses action {action}: status {status:#x}")


def main(what, file, controller="0"):
    with open(file, "rb") as drive:
        if what == "free":
            manage(drive, OF_PRIMARY, INTERRUPTS)
            manage(drive, OF_PRIMARY, QUEUES)
        else:
            its = int(controller)
            manage(drive, OFFLINE, controller=its)
            manage(drive, TO_SECONDARY, INTERRUPTS, 1, its)
            manage(drive, TO_SECONDARY, QUEUES, 2, its)
            manage(drive, ONLINE, controller=its)


main(*sys.argv[1:])
