"""What is planted, one at a time: in a guest, and on a host that has a machine of QEMU."""

from __future__ import annotations

from dataclasses import dataclass

CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
KSM = "/sys/kernel/mm/ksm/run"
POLL = "/sys/module/kvm/parameters/halt_poll_ns"
DRIVER = "/sys/bus/pci/drivers/vshmem"
GUEST, HOST = "guest", "host"


@dataclass(frozen=True)
class Planted:
    """A machine of QEMU on the host: paused, bound to the first core, all of its memory there.

    It is emulated: KVM in an emulated machine of two processors breaks that by chance.
    """

    name: str = "guest"
    node: int = 0
    vhost: str = "on"
    paused: bool = True

    def started(self) -> str:
        """The shell's commands that start it, and bind its processor."""
        tap = f"tap-{self.name}"
        words = (
            f"qemu-system-x86_64 -name {self.name},debug-threads=on -nodefaults -display none",
            f"-accel tcg -m 400 -daemonize -pidfile /run/{self.name}.pid",
            "-object memory-backend-ram,id=m,size=400M,prealloc=on,policy=bind,"
            f"host-nodes={self.node} -machine memory-backend=m",
            f"-netdev tap,id=n,ifname={tap},script=no,downscript=no,vhost={self.vhost}",
            "-device virtio-net-pci,netdev=n",
            "-S" if self.paused else "-drive file=/run/spin,format=raw",
        )
        thread = f"grep -l '^CPU 0/' /proc/$(cat /run/{self.name}.pid)/task/*/comm | cut -d / -f 5"
        return f"{' '.join(words)} && taskset -pc 0 $({thread}) >/dev/null"

    def ended(self) -> str:
        """The commands that end it."""
        pid = f"$(cat /run/{self.name}.pid)"
        return f"p={pid}; kill -9 $p; while kill -0 $p 2>/dev/null; do sleep 0.2; done"


@dataclass(frozen=True)
class Plant:
    """Something that costs; the shell's commands plant it and take it away as root."""

    name: str
    part: str
    check: str  # of doctor, that is about it; none: it has none
    plant: str = ""
    undo: str = ""
    machine: Planted | None = None  # in the place of the usual one


# What the usual machine is on the host, beside none.
MACHINE = Plant("a machine is emulated, and KVM is there", HOST, "emulation", machine=Planted())
PLANTS = (
    Plant(
        "time is read from acpi_pm",
        GUEST,
        "clock-source",
        f"echo acpi_pm >{CLOCK}",
        f"echo tsc >{CLOCK}",
    ),
    Plant(
        "no program gets huge pages",
        GUEST,
        "huge-pages",
        f"echo never >{THP}",
        f"echo madvise >{THP}",
    ),
    Plant("equal pages are merged", GUEST, "ksm", f"echo 1 >{KSM}", f"echo 0 >{KSM}"),
    Plant(
        "pools are in small pages",
        GUEST,
        "pool-huge-pages",
        "mount -o remount,huge=never /dev/shm; mkdir -p /dev/shm/vshmem.0; "
        "fallocate -l 65M /dev/shm/vshmem.0/planted",
        "rm /dev/shm/vshmem.0/planted; mount -o remount,huge=within_size /dev/shm",
    ),
    Plant(
        "a pool has no driver",
        GUEST,
        "pool-driver",
        f"cd {DRIVER}; for d in 0000:*; do echo $d >>/run/unbound; echo $d >unbind; done",
        f"while read d; do echo $d >{DRIVER}/bind; done </run/unbound; rm /run/unbound",
    ),
    Plant(
        "memory is swapped early (vm.swappiness=100)",
        GUEST,
        "",
        "cat /proc/sys/vm/swappiness >/run/were; echo 100 >/proc/sys/vm/swappiness",
        "cat /run/were >/proc/sys/vm/swappiness",
    ),
    Plant(
        "two machines are bound to one core",
        HOST,
        "shared-cores",
        Planted("other").started(),
        Planted("other").ended(),
    ),
    Plant("memory is on the other node", HOST, "remote-memory", machine=Planted(node=1)),
    Plant(
        "KVM's module is not loaded",
        HOST,
        "emulation",
        "rmmod kvm_amd",
        "busybox insmod /run/modules/kvm-amd.ko",
    ),
    Plant(
        "QEMU moves packets, vhost_net is there", HOST, "vhost-net", machine=Planted(vhost="off")
    ),
    Plant(
        "vhost_net is not loaded",
        HOST,
        "vhost-net",
        "rmmod vhost_net && rm -f /dev/vhost-net",
        "busybox insmod /run/modules/vhost_net.ko",
        Planted(vhost="off"),
    ),
    Plant(
        "KVM does not poll for a halted processor",
        HOST,
        "halt-polling",
        f"cat {POLL} >/run/polled; echo 0 >{POLL}",
        f"cat /run/polled >{POLL}",
    ),
    Plant("equal pages are merged", HOST, "ksm", f"echo 1 >{KSM}", f"echo 0 >{KSM}"),
)
# Of a machine that boots for it.
MODEL = "qemu64"
POOR = Plant(f"the processor's model is poor ({MODEL})", GUEST, "vector-instructions")
