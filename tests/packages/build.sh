#!/bin/sh
# In a system that has what builds the packages: builds them from the copy of the checkout beside this file,
# and tests them, and what `make install` does without packages.
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
source/tests/packages/lint.sh /tmp/target/deb/*.changes

source/tests/packages/by-hand.sh source

mkdir debs
cp source/tests/packages/use.sh source/tests/packages/program.* /tmp/target/deb/*.deb debs
exec debs/use.sh
