#!/bin/bash
# perl's IPC::ShareLite: a segment that grows, under semaphore locks with SEM_UNDO.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

perl -MIPC::ShareLite -e 1 2>/dev/null ||
    skip "IPC::ShareLite is not installed; 'apt-get install libipc-sharelite-perl' brings it"
needs_sysv perl "$here/perl/sharelite.pl"
"${on_vshmem[@]}" perl "$here/perl/sharelite.pl" >log 2>&1 || {
    cat log
    fail "sharelite.pl"
}
nothing_left || fail "objects are left: $(objects)"
echo "$(grep -c '^ok' log) assertions"
