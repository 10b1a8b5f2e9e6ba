# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# System V IPC between machines, by programs that know nothing of Vshmem. A filter forbids them the kernel's calls.
need_machines

"${CC:-cc}" -O1 -o "$work/forbid" "$MACHINES_ROOT/tests/conformance/forbid.c"
filter=$work/forbid

cat >"$work/send.pl" <<'P'
my $queue = msgget(0x1234, 01600); defined $queue or die "msgget: $!";
for my $size (5, 1000, 65536) {
    msgsnd($queue, pack("l! a*", $size, chr(65 + $size % 26) x $size), 0) or die "msgsnd $size: $!";
}
P
cat >"$work/receive.py" <<'P'
import ctypes
libc = ctypes.CDLL("libc.so.6", use_errno=True)
queue = libc.msgget(0x1234, 0o1600)
assert queue >= 0, ctypes.get_errno()
buffer = ctypes.create_string_buffer(8 + 70000)
for size in (65536, 1000, 5):
    got = libc.msgrcv(queue, buffer, 70000, ctypes.c_long(size), 0)
    assert got == size, (got, ctypes.get_errno())
    assert buffer.raw[8 : 8 + got] == bytes([65 + size % 26]) * size
    print(got)
assert libc.msgctl(queue, 0, None) == 0
P
equal "perl in one machine sends to python in the other" "vm1: 65536,vm1: 1000,vm1: 5," \
    "$(vshmem run --vm vm0 -- "$filter" perl "$work/send.pl" \
        : --vm vm1 -- "$filter" /usr/bin/python3 "$work/receive.py" 2>&1 | tr '\n' ',')"

cat >"$work/turns.pl" <<'P'
# Two processes take turns with two semaphores and count in a segment.
my $rank = $ENV{VSHMEM_RANK};
my $set = semget(0x2222, 2, 01600); defined $set or die "semget: $!";
my $segment = shmget(0x2222, 100000, 01600); defined $segment or die "shmget: $!";
sub change { semop($set, pack("s!3", @_)) or die "semop: $!" }
for my $turn (1 .. 200) {
    change($rank, -1, 0) if $rank == 1 or $turn > 1;
    my $count;
    shmread($segment, $count, 90000, 8) or die "shmread: $!";
    shmwrite($segment, pack("q", unpack("q", $count) + 1), 90000, 8) or die "shmwrite: $!";
    change(1 - $rank, 1, 0);
}
if ($rank == 0) {
    change(0, -1, 0);
    shmread($segment, my $count, 90000, 8);
    print unpack("q", $count), "\n";
    semctl($set, 0, 0, 0); shmctl($segment, 0, 0);
}
P
equal "two machines take turns with semaphores and count in a segment" "vm0: 400" \
    "$(vshmem run -- "$filter" perl "$work/turns.pl" 2>&1)"

cat >"$work/undo.pl" <<'P'
my $set = semget(0x3333, 1, 01600); defined $set or die "semget: $!";
if ($ENV{VSHMEM_RANK} == 0) {
    semop($set, pack("s!3", 0, 5, 0x1000)) or die "semop: $!";    # SEM_UNDO
    sleep 2;
} else {
    semop($set, pack("s!3", 0, -5, 0)) or die "semop: $!";
    semop($set, pack("s!3", 0, 5, 0)) or die "semop: $!";
    semop($set, pack("s!3", 0, 0, 0)) or die "semop: $!";         # wait for zero: for the other's undo
    print "undone\n";
    semctl($set, 0, 0, 0);
}
P
equal "what one machine's process leaves is undone for the other" "vm1: undone" \
    "$(vshmem run -- "$filter" perl "$work/undo.pl" 2>&1)"

vshmem run --vm vm0 -- perl -e 'msgsnd(msgget(0x4444, 01600) // die, pack("l! a*", 1, "abc"), 0) or die; shmget(0x4444, 5000, 01640) // die'
vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" >"$work/host"
contains "the host sees what a machine made" "0x00004444" "$(cat "$work/host")"
contains "and which one made it" "@vm0" "$(cat "$work/host")"
contains "the other machine sees it too" "0x00004444" "$(vshmem exec vm1 -- "$VSHMEM_BIN" ipcs)"
equal "the machine's kernel has nothing" "1" "$(vshmem exec vm0 -- cat /proc/sysvipc/msg | wc -l)"
equal "a process on the host joins in" "abc" \
    "$(VSHMEM_POOL=cluster.$VSHMEM_CLUSTER vshmem run --local --no-prefix -- \
        perl -e 'msgrcv(msgget(0x4444, 0) // die, my $m, 10, 0, 0) or die; print substr($m, 8), "\n"')"
vshmem ipcrm --pool "cluster.$VSHMEM_CLUSTER" -Q 0x4444 -M 0x4444
equal "and what was made can be removed from there" "" \
    "$(vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" | grep 0x00004444)"

cat >"$work/wait.pl" <<'P'
my $set = semget(0x6666, 3, 01600) // die "semget: $!";
semop($set, pack("s!3", 2, -4, 0)) or $!{EIDRM} or die "semop: $!";
P
vshmem run --vm vm1 -n 1 --no-prefix -- perl "$work/wait.pl" &
waiter=$!
waits() { vshmem ipcs --waiters --pool "cluster.$VSHMEM_CLUSTER" | grep -q '@vm1 .*alive .*semaphore 2 to let -4 be added'; }
eventually "the host sees who waits in a machine, and what for" waits
pid=$(vshmem exec vm1 -- pgrep -f wait.pl | head -1)
told() {
    vshmem "$@" --json | python3 -c "
import json, sys
told = json.load(sys.stdin)
$code"
}
code='waiter, = [w for p in told["pools"] for w in p["waiters"]]; print(waiter["process"]["kernel"], waiter["process"]["pid"], 0 <= __import__("time").time() - waiter["since"] < 60)'
equal "with its pid there and since when" "vm1 $pid True" "$(told ipcs --pool "cluster.$VSHMEM_CLUSTER")"
code='print(*[(m["name"], m["member"]["processes"], m["member"]["waiting"]) for c in told["clusters"] for m in c["machines"] if m["name"] == "vm1"])'
equal "vshmem ps counts it" "('vm1', 1, 1)" "$(told ps)"
contains "vshmem top in the other machine shows it" "@vm1 " "$(vshmem exec vm0 -- "$VSHMEM_BIN" top --once)"
vshmem ipcrm --pool "cluster.$VSHMEM_CLUSTER" -S 0x6666
code "and it ends" 0 wait "$waiter"

cat >"$work/fresh.pl" <<'P'
# A segment's memory served the other machine before; it must be empty all the same.
my $size = 300000;
for my $round (1 .. 5) {
    my $segment = shmget(0, $size, 01600) // die "shmget: $!";
    my $content;
    shmread($segment, $content, 0, $size) or die "shmread: $!";
    $content =~ /[^\0]/ and die "something was left in it";
    shmwrite($segment, "x" x $size, 0, $size) or die "shmwrite: $!";
    shmctl($segment, 0, 0) or die "shmctl: $!";
}
P
code "a new segment is empty whoever had its memory before" 0 vshmem run -- "$filter" perl "$work/fresh.pl"

cat >"$work/rule.pl" <<'P'
# Makes a queue as user 1000, or removes it as root; prints what came of it.
my $do = shift;
defined semget(0, 1, 01600) or die "the pool: $!";
$> = 1000 if $do ne 'remove';
my $queue = msgget(0x3333, $do eq 'make' ? 01600 : 0) // die "msgget: $!";
my $status;
print "$do: ", (msgctl($queue, $do eq 'remove' ? 0 : 2, $status) ? 'yes' : $!), "\n";
P
rule() { # rule VM WHAT [OPTION...]
    local vm=$1 what=$2
    shift 2
    vshmem run --vm "$vm" --no-prefix -u root "$@" -- perl "$work/rule.pl" "$what" 2>&1
}
equal "a machine's root does not rule over what another machine made, but its owner may use it" \
    "make: yes,remove: Operation not permitted,look: yes,remove: yes," \
    "$({
        rule vm0 make
        rule vm1 remove
        rule vm1 look
        rule vm0 remove
    } | tr '\n' ',')"
equal "users of a machine may have other ids in the pool" \
    "make: yes,look: yes,look: Permission denied,remove: yes," \
    "$({
        rule vm0 make -e 'VSHMEM_UID_MAP=0 0 1,1000 70000 1'
        rule vm1 look -e 'VSHMEM_UID_MAP=0 0 1,1000 70000 1'
        rule vm1 look
        rule vm0 remove
    } | tr '\n' ',')"
