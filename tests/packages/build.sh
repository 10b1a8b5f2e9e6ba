#!/bin/sh
# In a system that has what builds the packages: builds them from the copy of the checkout beside this file, and tests them, and what
# `make install` does without packages.
set -eu

cd "$(dirname "$0")"

fail() {
    echo "packages: $*" >&2
    exit 1
}

quietly_make() { # quietly_make TARGET: shows what it said if it failed
    make --no-print-directory -C source "$1" >/tmp/log 2>&1 || {
        cat /tmp/log
        fail "make $1 failed"
    }
}

export CARGO_HOME="$PWD/cargo" CARGO_NET_OFFLINE=true CARGO_TARGET_DIR=/tmp/target
source/scripts/cargo.sh --exec --version
quietly_make deb
./lint.sh /tmp/target/deb/*.changes

quietly_make install
grep -q '^vshmem:' /etc/group || fail "make install has not made the group vshmem"
LD_PRELOAD=libvshmem.so.1 perl -e 'my $s = semget(0x78, 1, 01600) // die $!; exit($s >> 30 != 1)' || fail "make install has not told the dynamic linker"
quietly_make uninstall
left=$(find /usr/local /etc ! -type d -name '*vshmem*')
[ -z "$left" ] || fail "make uninstall left: $left"
ldconfig
sed -i '/^vshmem:/d' /etc/group /etc/gshadow

mkdir debs
cp use.sh /tmp/target/deb/*.deb debs
exec debs/use.sh
