#!/bin/bash
# python's ctypes with libc.so.6 by name: calls that are looked up on libc's own handle, over two processes.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

python=/usr/bin/python3
need $python python3
needs_sysv $python "$here/libc_handle.py"
"${on_vshmem[@]}" $python "$here/libc_handle.py" >log 2>&1 || {
    cat log
    fail "libc_handle.py"
}
nothing_left || fail "objects are left: $(objects)"
echo "$(grep -c '^ok' log) assertions"
