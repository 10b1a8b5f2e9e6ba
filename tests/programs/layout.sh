#!/bin/bash
# The memory of a pool is as docs/layout.md says: read by that page alone.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || {
    echo "the kernel's IPC objects lie in no pool"
    exit 0
}
VSHMEM_POOL_SIZE=16M "${on_vshmem[@]}" perl "$here/perl/layout.pl" >ready 2>err.log &
program=$!
ready() { [ -s ready ] || ! kill -0 $program 2>/dev/null; }
eventually "the program to be ready" ready
[ -s ready ] || fail "$(cat err.log)"
read -r _ segment set queue <ready
/usr/bin/python3 "$here/read_pool.py" "$pool" $program "$segment" "$set" "$queue" ||
    fail "the pool is not as specified"
kill $program
