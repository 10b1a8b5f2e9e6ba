#!/bin/bash
# vshmem top, in a terminal and without one, while programs use the pool.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_command top

"${on_vshmem[@]}" perl "$here/perl/use.pl" &
waits() { "$vshmem" ipcs --waiters --pool "$pool" 2>/dev/null | grep -q 'semaphore 3'; }
eventually "a program that waits" waits
"$vshmem" --help | grep -q '^  top ' || fail "the command top is not listed"
/usr/bin/python3 "$here/top.py" "$vshmem" "$pool" || fail "vshmem top does not do what it should"
"$vshmem" top --pool "$pool" --once --json >top.log
has_shape top top.log
"$vshmem" ipcs --pool "$pool" --json >ipcs.log
has_shape ipcs ipcs.log
if "$vshmem" top --pool /nonexistent/pool --once 2>err.log; then
    fail "a pool that is not there was shown"
fi
grep -q 'could not open the pool' err.log || fail "vshmem top says: $(cat err.log)"
"$vshmem" ipcrm --pool "$pool" --all
wait
echo "in a terminal, as text and as JSON"
