#!/bin/bash
# vshmem check: a pool in use is whole, what a killed process leaves is mended and told, damage is told, and it is itself safe to kill.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's own System V IPC has no vshmem check"
need perl perl
need python3 python3
need_schemas
vshmem=${VSHMEM_BIN:-$(dirname "$PROGRAMS_LIB")/vshmem}

check() { # check CODE TEXT [OPTION...]: of the pool
    code=$1 text=$2
    shift 2
    status=0
    "$vshmem" check "$@" "$pool" >check.log 2>&1 || status=$?
    [ "$status" -eq "$code" ] || fail "vshmem check ended with $status, not $code: $(cat check.log)"
    grep -q "$text" check.log || fail "vshmem check says: $(cat check.log)"
}

cat >hold.pl <<'P'
my $set = semget(0x12, 2, 01600) // die "semget: $!";
semctl($set, 0, 16, 5);
semop($set, pack("s!3", 0, -1, 0x1000)) // die "semop: $!";
$| = 1;
print "ready\n";
semop($set, pack("s!3", 1, -1, 0));
P
"${on_vshmem[@]}" perl hold.pl >hold.log &
holder=$!
ready() { grep -q ready hold.log; }
within 10 "a program that holds something" ready
check 0 "is whole"
kill -KILL "$holder"
wait "$holder" 2>/dev/null || true
check 1 "cleaned up after dead processes: 1"
check 0 '"state": "whole"' --json
has_shape check check.log
echo "whole, mended and whole again"

cat >busy.pl <<'P'
my $queue = msgget(0x11, 01600) // die "msgget: $!";
my $end = time + 6;
while (time < $end) {
    for (1 .. 200) {
        msgsnd($queue, pack("l! a*", 1, "x" x (rand 3000)), 04000);
        msgrcv($queue, my $message, 4000, 0, 04000);
    }
    my $set = semget(0, 30, 01600) // die "semget: $!";
    semop($set, pack("s!6", 0, 1, 0x1000, 1, 1, 0)) // die "semop: $!";
    semctl($set, 0, 0, 0);
    my $segment = shmget(0, 5000, 01600) // die "shmget: $!";
    shmctl($segment, 0, 0);
}
P
"${on_vshmem[@]}" perl busy.pl &
one=$!
"${on_vshmem[@]}" perl busy.pl &
other=$!
for i in 1 2 3 4 5 6 7 8; do
    "$vshmem" check "$pool" >killed.log 2>&1 &
    killed=$!
    sleep "0.00$i"
    kill -KILL "$killed" 2>/dev/null || true
    wait "$killed" 2>/dev/null || true
    "$vshmem" check "$pool" >check.log 2>&1 || [ $? -eq 1 ] || fail "beside programs and killed checks: $(cat check.log)"
done
wait "$one" || fail "a program failed while the pool was checked"
wait "$other" || fail "a program failed while the pool was checked"
check 0 "is whole"
echo "beside programs, and killed"

# Sets in use, by docs/layout.md: in the root, at 1024.
python3 - "$pool" <<'P'
import sys
with open(sys.argv[1], "r+b") as pool:
    pool.seek(1024 + 24 + 40 + 16)
    pool.write((99).to_bytes(8, "little"))
P
check 4 "counts the entries in use wrongly (99)"
check 4 '"state": "damaged"' --json
has_shape check check.log
status=0
"$vshmem" check /nonexistent/pool 2>err.log || status=$?
[ "$status" -eq 125 ] || fail "of a pool that is not there, vshmem check ended with $status"
grep -q 'nonexistent' err.log || fail "vshmem check says: $(cat err.log)"
echo "damaged"
