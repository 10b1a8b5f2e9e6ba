#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a system that is its initramfs only: it runs the script in its seed's user-data, as
# cloud-init does, with nothing of systemd but two names.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /dev /etc /proc /run /sys /tmp
mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for module in virtio_pci virtio_blk virtio_console nls_cp437 nls_ascii vfat; do
    modprobe "$module"
done
printf '#!/bin/sh\nexit 1\n' >/bin/systemctl
# The last word is what is to run.
printf '#!/bin/sh\nfor last; do :; done\nsetsid "$last" &\n' >/bin/systemd-run
chmod +x /bin/systemctl /bin/systemd-run
mkdir /seed
until seed=$(findfs LABEL=cidata); do
    sleep 0.1
done
mount -t vfat -o ro "$seed" /seed
hostname "$(sed -n 's/.*"local-hostname": "\(.*\)".*/\1/p' /seed/meta-data)"
# The script is a string of JSON, in a line of its own.
printf '%b' "$(sed -n 's/^ *"\(set -e\\n.*\)"$/\1/p' /seed/user-data)" >/run/boot
umount /seed
sh /run/boot
while :; do
    sleep 1000
done
