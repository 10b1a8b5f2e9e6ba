#!/bin/sh
# try.sh [--built] [SUITE...]: in a minimal system, as root: what the README tells a new user to type. The
# checkout is in /home/vshmem.
set -eu
cd /home/vshmem
# Empty: nobody chose. Then the lane does.
[ -n "${MACHINES_CASES:-}" ] || unset MACHINES_CASES
[ -n "${MPI_CASES:-}" ] || unset MPI_CASES
cp .resolv.conf /etc/resolv.conf
[ ! -e .certificates.crt ] || export PIP_CERT=/home/vshmem/.certificates.crt
apt-get update -qq
if [ -n "${BACKPORTS:-}" ]; then
    sed -n 's/^\(deb [^ ]*\) trixie /\1 trixie-backports /p' /etc/apt/sources.list \
        >/etc/apt/sources.list.d/backports.list
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends -t trixie-backports $BACKPORTS >/dev/null
fi
if [ "${1:-}" = --built ]; then
    shift
    scripts/prepare.sh --install "$@"
    export VSHMEM_TEST_BUILT=1
    exec scripts/test.sh "$@"
fi
export CARGO_NET_OFFLINE=true
# Rust as this system has it is tried here, not how well it optimizes, which is half of the time: so no suite
# that counts instructions (capi), unless all that every change needs is asked for.
if [ $# -gt 0 ]; then
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=none
    export CARGO_PROFILE_DEV_DEBUG=none CARGO_INCREMENTAL=0
fi
# Only make and its caller are there.
apt-get install -y -qq --no-install-recommends make >/dev/null
[ $# -gt 0 ] || make demo
make test SUITES="$*"
rm -rf /dev/shm/vshmem.*
tests/packages/by-hand.sh /home/vshmem
