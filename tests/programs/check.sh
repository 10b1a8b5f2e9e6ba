#!/bin/bash
# vshmem check: a pool in use is whole, what a killed process leaves is mended and told, damage is told, and
# it is itself safe to kill.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_command check

check() { # check CODE TEXT [OPTION...]: of the pool
    code=$1 text=$2
    shift 2
    status=0
    "$vshmem" check "$@" "$pool" >check.log 2>&1 || status=$?
    [ "$status" -eq "$code" ] || fail "vshmem check ended with $status, not $code: $(cat check.log)"
    grep -q "$text" check.log || fail "vshmem check says: $(cat check.log)"
}

"${on_vshmem[@]}" perl "$here/../lib/programs/hold.pl" 0x12 1 >hold.log &
holder=$!
eventually "a program that holds something" grep -q held hold.log
check 0 "is whole"
kill -KILL "$holder"
wait "$holder" 2>/dev/null || true
check 1 "cleaned up after dead processes: 1"
check 0 '"state": "whole"' --json
has_shape check check.log
echo "whole, mended and whole again"

"${on_vshmem[@]}" perl "$here/perl/busy.pl" &
one=$!
"${on_vshmem[@]}" perl "$here/perl/busy.pl" &
other=$!
for i in 1 2 3 4 5 6 7 8; do
    "$vshmem" check "$pool" >killed.log 2>&1 &
    killed=$!
    sleep "0.00$i"
    kill -KILL "$killed" 2>/dev/null || true
    wait "$killed" 2>/dev/null || true
    "$vshmem" check "$pool" >check.log 2>&1 || [ $? -eq 1 ] ||
        fail "beside programs and killed checks: $(cat check.log)"
done
wait "$one" || fail "a program failed while the pool was checked"
wait "$other" || fail "a program failed while the pool was checked"
check 0 "is whole"
echo "beside programs, and killed"

/usr/bin/python3 "$here/damage.py" "$pool"
check 4 "counts the entries in use wrongly (99)"
check 4 '"state": "damaged"' --json
has_shape check check.log
status=0
"$vshmem" check /nonexistent/pool 2>err.log || status=$?
[ "$status" -eq 125 ] || fail "of a pool that is not there, vshmem check ended with $status"
grep -q 'nonexistent' err.log || fail "vshmem check says: $(cat err.log)"
# A pool that another version made is listed as what it is, and can be removed.
old=old-$$
"$vshmem" pool create "$old" --size 4M
printf '\377' | dd of="$("$vshmem" pool ls | awk -v name="$old" '$1 == name { print $NF }')" bs=1 seek=8 \
    conv=notrunc status=none
"$vshmem" pool ls >pools.log 2>pools.err
grep -q "^$old .* unusable " pools.log || fail "pool ls shows $(cat pools.log)"
grep -q "$old: the pool has layout version 255, .*: vshmem pool rm $old\$" pools.err ||
    fail "pool ls says $(cat pools.err)"
"$vshmem" pool rm "$old"
echo "damaged"
