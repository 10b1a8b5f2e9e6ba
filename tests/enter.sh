#!/bin/sh
# enter.sh DIRECTORY ARCHIVE COMMAND...: unpacks a system there, and runs a command in it. As root of name
# spaces, see system.sh. SYSTEM_BINDS are directories of the host that it has at places of its own, as
# FROM:TO; both must exist.
set -eu

directory=$1 archive=$2
shift 2
# Devices can't be made in a user name space: the host's are shown.
zstd -qdc "$archive" | tar -x --numeric-owner --exclude='./dev/*' -C "$directory"
mount -t proc proc "$directory/proc"
mount --rbind /sys "$directory/sys"
mount -t tmpfs -o mode=755 dev "$directory/dev"
for device in null zero full random urandom tty kvm net/tun; do
    [ -e "/dev/$device" ] || continue
    mkdir -p "$directory/dev/${device%"${device##*/}"}"
    : >"$directory/dev/$device"
    mount --bind "/dev/$device" "$directory/dev/$device"
done
for link in fd:fd fd/0:stdin fd/1:stdout fd/2:stderr; do
    ln -s "/proc/self/${link%:*}" "$directory/dev/${link#*:}"
done
mkdir "$directory/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$directory/dev/pts"
ln -s pts/ptmx "$directory/dev/ptmx"
mkdir -m 1777 "$directory/dev/shm"
mount -t tmpfs -o mode=1777 shm "$directory/dev/shm"
# As Debian's installer has it: a host knows its own name.
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$directory/etc/hosts"
for bind in ${SYSTEM_BINDS:-}; do mount --bind "${bind%%:*}" "$directory${bind#*:}"; done
# No chroot, in which there are no name spaces of users.
mount --rbind "$directory" "$directory"
cd "$directory"
mkdir -p host
pivot_root . host
umount -l /host
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive \
    "$@"
