#!/bin/bash
# Processes of containers, which may have the same pids, are told apart by vshmem ipcs.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's own System V IPC has no vshmem ipcs"
need unshare util-linux
need hostname hostname
need perl perl
need_schemas
vshmem=${VSHMEM_BIN:-$(dirname "$PROGRAMS_LIB")/vshmem}
apart=(unshare --user --map-root-user --mount --pid --uts --fork --kill-child --mount-proc)
"${apart[@]}" true 2>err.log || skip "namespaces of a user's own are not allowed here: $(cat err.log)"

cat >wait.pl <<'P'
# Sends to the queue, and waits for the semaphore.
my $queue = msgget(0x31, 01600) // die "msgget: $!";
msgsnd($queue, pack("l! a*", 1, "x"), 0) or die "msgsnd: $!";
my $set = semget(0x32, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, -1, 0));
P

# container NAME: its first process waits
container() {
    # shellcheck disable=SC2016 # for the inner shell
    exec "${apart[@]}" sh -c 'hostname "$1" && shift && exec "$@"' sh "$1" "${on_vshmem[@]}" perl wait.pl
}
waiting() { "$vshmem" ipcs --waiters --pool "$pool" | sed -n '/^Waiting threads/,$s/^set  *[0-9]* *\([^ ]*\) .*/\1/p' | sort; }
waits() { [ "$(waiting)" = "$(printf '%s\n' "$@" | sort)" ]; }

"${on_vshmem[@]}" perl wait.pl &
alone=$!
within 20 "a process that waits" waits "$alone@$(hostname)"
(container one) &
one=$!
within 20 "a container's process" waits 1@one "$alone@$(hostname)"
"$vshmem" ipcs --pool "$pool" | grep -q ' 1@one ' || fail "it is not told who sent last: $("$vshmem" ipcs --pool "$pool")"
(container two) &
two=$!
within 20 "those of two containers" waits 1@one 1@two "$alone@$(hostname)"
"$vshmem" ipcs --pool "$pool" | grep -q " 1@two " || fail "it is not told which of two sent last: $("$vshmem" ipcs --pool "$pool")"

"$vshmem" ipcs --pool "$pool" --json >ipcs.log
has_shape ipcs ipcs.log
/usr/bin/python3 - "$alone" <<'P' || fail "$(cat ipcs.log)"
import json, os, sys

(pool,) = json.load(open("ipcs.log"))["pools"]
by_name = {process["name"]: process for process in pool["processes"]}
one, two = by_name["1@one"], by_name["1@two"]
assert (one["pid"], one["hostname"], one["kernel"]) == (1, "one", two["kernel"]), one
assert one["namespace"] != two["namespace"], (one, two)
assert len({one["pid_here"], two["pid_here"], int(sys.argv[1])}) == 3, (one, two)
for process in [one, two]:
    assert open(f"/proc/{process['pid_here']}/comm").read() == "perl\n", process
(queue,) = pool["queues"]
assert queue["sender"] == two, queue
assert queue["receiver"] is None, queue
P

# From another container neither can be seen: they are told apart all the same.
# shellcheck disable=SC2016 # for the inner shell
"${apart[@]}" "$vshmem" ipcs --waiters --pool "$pool" >inside.log
[ "$(sed -n '/^Waiting threads/,$p' inside.log | grep -o ' 1@[^ ]*#[0-9a-f]* ' | sort -u | wc -l)" = 2 ] || fail "seen from a container: $(cat inside.log)"

kill -KILL "$one" "$two"
# Of a container that is gone a number is left.
gone() { "$vshmem" ipcs --pool "$pool" | grep -q " 1@$(hostname)#[0-9a-f]* "; }
within 20 "a container that is gone" gone
"$vshmem" ipcrm --pool "$pool" --all
wait
echo "two first processes of containers, and one of none"
