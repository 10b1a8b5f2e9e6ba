#!/bin/bash
# util-linux: ipcmk makes IPC objects, ipcrm removes them by id and by key.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need ipcmk util-linux
need ipcrm util-linux
needs_sysv ipcmk -Q

# Prints the id that ipcmk reports.
make() {
    "${on_vshmem[@]}" ipcmk "$@" | sed -n 's/.*id: \([0-9]*\)$/\1/p'
}
remove() {
    "${on_vshmem[@]}" ipcrm "$@"
}

equal "at first" "segments 0, sets 0, queues 0" "$(objects)"
segment=$(make -M 100000)
set=$(make -S 5 -p 0600)
queue=$(make -Q)
equal "after ipcmk" "segments 1, sets 1, queues 1" "$(objects)"
remove -m "$segment"
equal "after ipcrm -m" "segments 0, sets 1, queues 1" "$(objects)"
remove -s "$set" -q "$queue"
equal "after ipcrm -s -q" "segments 0, sets 0, queues 0" "$(objects)"
if remove -m "$segment" 2>err.log; then
    fail "ipcrm removed a segment twice"
fi
grep -q 'invalid id\|already removed' err.log || fail "ipcrm says: $(cat err.log)"
if remove -Q 0x1234abcd 2>err.log; then
    fail "ipcrm removed a key that is not there"
fi
grep -q 'invalid key' err.log || fail "ipcrm says: $(cat err.log)"
echo "ipcmk and ipcrm of each kind"
