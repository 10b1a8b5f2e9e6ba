"""Domains of libvirt for tests, made of an example; prints one.

domain.py without DOMAIN.xml                the domain without its parts for Vshmem
domain.py with DOMAIN.xml PARTS.xml         the domain with parts that `vshmem attach --libvirt`
                                            prints, as `virsh edit` would put them
domain.py booting DOMAIN.xml NAME=VALUE...  the domain, which boots a kernel that has the host's
                                            root by 9p, and what `vshmem exec` talks to
"""

import sys
import xml.etree.ElementTree as ElementTree

QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
AGENT = "channel/target[@name='org.vshmem.agent'].."
ElementTree.register_namespace("qemu", QEMU.strip("{}"))


def ours(domain):
    """Elements for Vshmem, each with the one that it is in."""
    devices = domain.find("devices")
    for element in devices.findall("controller[@model='pcie-root-port']") + devices.findall(AGENT):
        yield devices, element
    for element in domain.findall(QEMU + "commandline"):
        yield domain, element


def without(domain):
    """Takes the parts for Vshmem out."""
    for parent, element in ours(domain):
        parent.remove(element)


def put(domain, parts):
    """Puts the parts of another domain in."""
    for parent, element in ours(parts):
        (domain if parent is parts else domain.find("devices")).append(element)


def boot(domain, name, emulator, disk, kernel, initrd, console, channel, cmdline):
    """Has the domain boot that kernel, which takes commands by the channel."""
    domain.find("name").text = name
    domain.find("memory").text = "512"
    domain.find("vcpu").text = "1"
    system, devices = domain.find("os"), domain.find("devices")
    system.remove(system.find("boot"))
    for tag, text in (("kernel", kernel), ("initrd", initrd), ("cmdline", cmdline)):
        ElementTree.SubElement(system, tag).text = text
    emulated = ElementTree.Element("emulator")
    emulated.text = emulator
    devices.insert(0, emulated)
    devices.find("disk/driver").set("type", "raw")
    devices.find("disk/source").set("file", disk)
    devices.remove(devices.find("serial"))
    devices.extend(
        ElementTree.fromstring(
            f"""<more>
            <filesystem type="mount" accessmode="passthrough" multidevs="remap">
              <source dir="/"/><target dir="root"/><readonly/>
              <address type="pci" bus="0x00" slot="0x15"/>
            </filesystem>
            <serial type="file"><source path="{console}"/></serial>
            <channel type="unix">
              <source mode="bind" path="{channel}"/>
              <target type="virtio" name="vshmem.0"/>
            </channel>
            </more>"""
        )
    )


what, file, *rest = sys.argv[1:]
tree = ElementTree.parse(file)
if what == "without":
    without(tree.getroot())
elif what == "with":
    put(tree.getroot(), ElementTree.parse(rest[0]).getroot())
else:
    boot(tree.getroot(), **dict(setting.split("=", 1) for setting in rest))
print(ElementTree.tostring(tree.getroot(), encoding="unicode"))
