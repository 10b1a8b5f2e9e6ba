# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# What machines remove goes back to the host while they run, and comes to its next user as zeros. What they held is free when they die.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}m
if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --pool-size 256M >"$work/up" 2>&1; then
    failed "two machines with a back end come up" "$(cat "$work/up")"
    exit 1
fi
pool=/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER
megabytes() { echo $(($(stat -c %b "$pool") / 2048)); }

cat >"$work/fill.pl" <<'P'
# Makes a segment of 64 MiB, fills it, and says so; removes it when it is told.
my $size = 64 << 20;
my $segment = shmget(0, $size, 01600) // die "shmget: $!";
for my $at (0 .. 63) { shmwrite($segment, "x" x (1 << 20), $at << 20, 1 << 20) or die "shmwrite: $!" }
$| = 1;
print "full\n";
<STDIN>;
shmctl($segment, 0, 0) or die "shmctl: $!";
sleep 20 if @ARGV;
P
cat >"$work/empty.pl" <<'P'
my $segment = shmget(0, 64 << 20, 01600) // die "shmget: $!";
for my $at (0 .. 63) {
    shmread($segment, my $content, $at << 20, 1 << 20) or die "shmread: $!";
    $content =~ /[^\0]/ and die "something was left in it";
}
shmctl($segment, 0, 0) or die "shmctl: $!";
print "zeros\n";
P

# fill_and_remove VM WORD...: the megabytes of the pool's file before, with the segment, and for whom it is over
fill_and_remove() {
    before=$(megabytes)
    mkfifo "$work/say"
    vshmem run --vm "$1" -n 1 --no-prefix -- perl "$work/fill.pl" "${@:2}" <"$work/say" >"$work/heard" &
    filler=$!
    exec 9>"$work/say"
    eventually "$1 fills 64 MiB" grep -q full "$work/heard"
    full=$(megabytes)
    echo >&9
    exec 9>&-
    rm "$work/say"
}
is_back() { [ "$(megabytes)" -le "$((full - 60))" ]; }

fill_and_remove vm0 stay
equal "they are the host's memory" yes "$([ "$full" -ge "$((before + 60))" ] && echo yes)"
eventually "the memory is back on the host while both machines and the process run" is_back
equal "the process runs on" yes "$(kill -0 "$filler" && echo yes)"
equal "the next one, in the other machine, reads zeros" zeros "$(vshmem run --vm vm1 -n 1 --no-prefix -- perl "$work/empty.pl" 2>&1)"
kill "$filler" 2>/dev/null || true
wait "$filler" 2>/dev/null || true

back_end() { vshmem agent --status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])'; }
fill_and_remove vm1
for round in 1 2 3 4 5 6; do
    kill -KILL "$(back_end)"
    sleep "0.$round"
done
eventually "the memory is back though the back end was killed again and again" is_back
wait "$filler"
equal "and is empty" zeros "$(vshmem run --vm vm0 -n 1 --no-prefix -- perl "$work/empty.pl" 2>&1)"

# A machine that is killed leaves nothing to those that go on.
cat >"$work/hold.pl" <<'P'
my $set = semget(0x8888, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, 3, 0x1000)) or die "semop: $!";    # SEM_UNDO
sleep 100;
P
cat >"$work/value.pl" <<'P'
print semctl(semget(0x8888, 1, 0) // die("semget: $!"), 0, 12, 0) + 0;    # GETVAL
P
vshmem run --vm vm1 -n 1 --no-prefix -- perl "$work/hold.pl" >"$work/held" 2>&1 &
holder=$!
value_is() { [ "$(vshmem run --vm vm0 -n 1 --no-prefix -- perl "$work/value.pl")" = "$1" ]; }
eventually "a machine changes a semaphore with SEM_UNDO" value_is 3
kill -KILL "$(vshmem ps --json | python3 -c 'import json, sys
print(*[m["pid"] for c in json.load(sys.stdin)["clusters"] for m in c["machines"] if m["name"] == "vm1"])')"
wait "$holder" || true
eventually "which is undone for the other when the machine is killed" value_is 0

vshmem down
nothing_left "nothing is left of machines that gave memory back"
export VSHMEM_CLUSTER=$cluster
