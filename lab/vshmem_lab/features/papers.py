"""What paper 002 has: its hypervisors of 2011, and their ranks (figures 3.1 and 3.8)."""

from __future__ import annotations

HYPERVISORS = ("Xen 3.1", "KVM of RHEL 5", "VirtualBox 3.2", "VMware ESX")
FEATURES = (
    ("paravirtualization", "yes", "no", "no", "no"),
    ("full virtualization", "yes", "yes", "yes", "yes"),
    ("hosts' processors", "x86, x86-64, IA-64", "x86, x86-64, IA-64, PPC", *["x86, x86-64"] * 2),
    ("guests' processors", "x86, x86-64, IA-64", "x86, x86-64, IA-64, PPC", *["x86, x86-64"] * 2),
    ("host", "Linux, UNIX", "Linux", "Windows, Linux, UNIX", "proprietary UNIX"),
    ("guest", *["Linux, Windows, UNIX"] * 4),
    ("VT-x or AMD-V", "optional", "required", "optional", "optional"),
    ("virtual processors at most", "128", "16", "32", "8"),
    ("memory at most", "4 TB", "4 TB", "16 GB", "64 GB"),
    ("3D acceleration", "Xen-GL", "VMGL", "OpenGL", "OpenGL, DirectX"),
    ("live migration", "yes", "yes", "yes", "yes"),
    ("licence", "GPL", "GPL", "GPL, proprietary", "proprietary"),
)
RANKED = ("Xen", "KVM", "VirtualBox")
RANKS = (
    ("Linpack", "3", "1", "2"),
    ("FFT", "3", "1", "2"),
    ("bandwidth", "2", "3", "1"),
    ("latency", "3", "2", "1"),
    ("OpenMP", "2", "1", "3"),
    ("total", "13", "8", "9"),
)
