# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# What machines remove goes back to the host while they run, and comes to its next user as zeros. What they
# held is free when they die.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}m
if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --pool-size 256M >"$work/up" 2>&1; then
    failed "two machines with a back end come up" "$(cat "$work/up")"
    exit 1
fi
pool=/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER
megabytes() { echo $(($(stat -c %b "$pool") / 2048)); }


# fill_and_remove VM WORD...: the megabytes of the pool's file before, with the segment, and for whom it is
# over
fill_and_remove() {
    before=$(megabytes)
    mkfifo "$work/say"
    vshmem run --vm "$1" -n 1 --no-prefix -- perl "$programs/fill.pl" "${@:2}" <"$work/say" >"$work/heard" &
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
equal "the next one, in the other machine, reads zeros" zeros \
    "$(vshmem run --vm vm1 -n 1 --no-prefix -- perl "$programs/empty.pl" 2>&1)"
kill "$filler" 2>/dev/null || true
wait "$filler" 2>/dev/null || true

fill_and_remove vm1
for round in 1 2 3 4 5 6; do
    kill -KILL "$(back_end)"
    sleep "0.$round"
done
eventually "the memory is back though the back end was killed again and again" is_back
wait "$filler"
equal "and is empty" zeros "$(vshmem run --vm vm0 -n 1 --no-prefix -- perl "$programs/empty.pl" 2>&1)"

# A machine that is killed leaves nothing to those that go on.
vshmem run --vm vm1 -n 1 --no-prefix -- perl "$common/hold.pl" 0x8888 3 >"$work/held" 2>&1 &
holder=$!
value_is() { [ "$(vshmem run --vm vm0 -n 1 --no-prefix -- perl "$common/value.pl" 0x8888)" = "$1" ]; }
eventually "a machine changes a semaphore with SEM_UNDO" value_is 3
kill -KILL "$(pid_of vm1)"
wait "$holder" || true
eventually "which is undone for the other when the machine is killed" value_is 0

vshmem down
nothing_left "nothing is left of machines that gave memory back"
export VSHMEM_CLUSTER=$cluster
