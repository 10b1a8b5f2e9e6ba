#!/bin/sh
# by-hand.sh CHECKOUT: what `make install` does without packages, as root of a system that is thrown away.
# CHECKOUT is built.
set -eu

fail() {
    echo "make install: $*" >&2
    exit 1
}

quietly_make() { # quietly_make TARGET: shows what it said if it failed
    make --no-print-directory -C "$checkout" "$1" >/tmp/log 2>&1 || {
        cat /tmp/log
        fail "make $1 failed"
    }
}

checkout=$1
quietly_make install
grep -q '^vshmem:' /etc/group || fail "it has not made the group vshmem"
LD_PRELOAD=libvshmem.so.1 perl -e 'my $s = semget(0x78, 1, 01600) // die $!; exit($s >> 30 != 1)' ||
    fail "it has not told the dynamic linker"
for file in udev/rules.d/60-vshmem.rules sysusers.d/vshmem.conf systemd/system/vshmem-agent-guest.service; do
    [ -s "/usr/local/lib/$file" ] || fail "$file is not there"
done
quietly_make uninstall
left=$(find /usr/local /etc ! -type d -name '*vshmem*')
[ -z "$left" ] || fail "make uninstall left: $left"
ldconfig
sed -i '/^vshmem:/d' /etc/group /etc/gshadow
