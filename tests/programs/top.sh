#!/bin/bash
# vshmem top, in a terminal and without one, while programs use the pool.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's own System V IPC has no vshmem top"
need perl perl
need python3 python3
need_schemas
vshmem=${VSHMEM_BIN:-$(dirname "$PROGRAMS_LIB")/vshmem}

cat >use.pl <<'P'
my $queue = msgget(0x11, 01600) // die "msgget: $!";
my $set = semget(0x12, 4, 01600) // die "semget: $!";
shmget(0x13, 1 << 20, 01600) // die "shmget: $!";
if (fork) {
    while (msgsnd($queue, pack("l! a*", 1, "x" x 100), 0)) { select(undef, undef, undef, 0.01) }
} elsif (fork) {
    while (msgrcv($queue, my $message, 200, 0, 0)) { select(undef, undef, undef, 0.001) }
} else {
    semop($set, pack("s!3", 3, -1, 0));
}
P
"${on_vshmem[@]}" perl use.pl &
waits() { "$vshmem" ipcs --waiters --pool "$pool" 2>/dev/null | grep -q 'semaphore 3'; }
within 10 "a program that waits" waits
"$vshmem" --help | grep -q '^  top ' || fail "the command top is not listed"
python3 "$here/top.py" "$vshmem" "$pool" || fail "vshmem top does not do what it should"
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
