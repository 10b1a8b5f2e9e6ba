#!/bin/bash
# util-linux: ipcmk makes IPC objects, ipcs and lsipc list them and their limits, ipcrm removes them by id and
# by key.
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

segment=$(make -M 100000)
set=$(make -S 5 -p 0600)
queue=$(make -Q)
"${on_vshmem[@]}" ipcs >listed
equal "ipcs" "3" "$(grep -c '^0x' listed)"
grep -q "^0x[0-9a-f]* *$segment  *.* 100000 * 0 *$" listed || fail "ipcs shows no segment: $(cat listed)"
grep -q "^0x[0-9a-f]* *$set  *.* 600 * 5 *$" listed || fail "ipcs shows no set: $(cat listed)"
grep -q "^0x[0-9a-f]* *$queue  *.* 0 * 0 *$" listed || fail "ipcs shows no queue: $(cat listed)"
equal "lsipc's sets" "$set" "$("${on_vshmem[@]}" lsipc -s --noheadings -o ID | tr -d ' ')"
"${on_vshmem[@]}" lsipc --raw --bytes -o RESOURCE,LIMIT,USED >listed
grep -q '^SHMMNI .* 1$' listed && grep -q '^SEMMNS .* 5$' listed || fail "lsipc counts: $(cat listed)"
limits() { sed -n 's/^max queues system wide = //p; s/^max number of segments = //p'; }
wanted=$("${on_vshmem[@]}" lsipc --raw -o RESOURCE,LIMIT | sed -n 's/^MSGMNI //p; s/^SHMMNI //p')
equal "ipcs's limits" "$wanted" "$("${on_vshmem[@]}" ipcs -l | limits)"
# Newer ones remove POSIX objects, too, if it is not said which.
for kind in shm sem msg; do remove --all=$kind; done
equal "after ipcrm --all" "segments 0, sets 0, queues 0" "$(objects)"
equal "ipcs then" "0" "$("${on_vshmem[@]}" ipcs | grep -c '^0x')"
echo "ipcmk, ipcs, lsipc and ipcrm of each kind"
