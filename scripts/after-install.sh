#!/bin/sh
# What a package manager does after `make install`, if root runs that: the library is known to the dynamic
# linker, the group is there, and udev and systemd know of the new files.
#
#   scripts/after-install.sh FILE     FILE: the installed settings for systemd-sysusers
set -eu

[ "$(id -u)" -eq 0 ] || exit 0
PATH=$PATH:/usr/sbin:/sbin
ldconfig
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$1"
else
    getent group vshmem >/dev/null || groupadd --system vshmem
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ -S /run/udev/control ]; then
    udevadm control --reload
fi
