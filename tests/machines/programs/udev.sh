#!/bin/sh
# udev.sh RULES: as root of a machine, plugs in a device for a pool that the front end has given to a user,
# and one that it has not; prints what becomes of each: its owner, group and mode, and whether it is on.
set -e
echo vshmem:x:4321: >>/etc/group
mkdir -p /run/udev/rules.d
cp "$1" /run/udev/rules.d/
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" "$device/device" | tr '\n' ' ')" != '0x1af4 0x1110 ' ] || file=$device/resource2
done
# As a device that was plugged in a moment ago, and nobody has used.
chown root:root "$file"
chmod 600 "$file"
echo 0 >"${file%/*}/enable"
/lib/systemd/systemd-udevd --daemon 2>/dev/null
plugged_in() {
    udevadm trigger --action=add --subsystem-match=pci
    udevadm settle
    echo "$(stat -c '%u %G %a' "$file") $(cat "${file%/*}/enable")"
}
chown 1234 "$file"
plugged_in
chown 0 "$file"
plugged_in
