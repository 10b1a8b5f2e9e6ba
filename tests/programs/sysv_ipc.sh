#!/bin/bash
# python's sysv_ipc: the module's own test suite, of the version that is installed.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

python=/usr/bin/python3
need $python python3
$python -c 'import sysv_ipc' 2>/dev/null ||
    skip "sysv_ipc is not installed; 'apt-get install python3-sysv-ipc' brings it"
$python -m pip --version >/dev/null 2>&1 ||
    skip "pip is not installed; 'apt-get install python3-pip' brings it"

# Debian's package leaves the tests out; the source package on PyPI has them.
version=$($python -c 'import sysv_ipc; print(sysv_ipc.VERSION)')
$python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --dest . "sysv_ipc==$version" >pip.log 2>&1 || {
    cat pip.log
    fail "cannot fetch the source package sysv_ipc $version, which holds the tests"
}
tar xf sysv_ipc-*.tar.gz
mv "sysv_ipc-$version/tests" tests
needs_sysv $python -c 'import sysv_ipc; sysv_ipc.SharedMemory(None, sysv_ipc.IPC_CREX)'

"${on_vshmem[@]}" $python -m unittest discover -s tests -t . >suite.log 2>&1 || {
    cat suite.log
    fail "the test suite of sysv_ipc $version"
}
nothing_left || fail "objects are left: $(objects)"
ran=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' suite.log)
[ "${ran:-0}" -ge 100 ] || fail "only ${ran:-0} tests ran"
echo "sysv_ipc $version: $ran tests of its own"
