# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# The host has no memory left for files, while machines work in a pool: its /dev/shm is full, which is a small
# one of its own here.

if [ -z "${ROOM_OF_ITS_OWN:-}" ]; then
    vshmem down >/dev/null 2>&1
    own=
    [ "$(id -u)" -eq 0 ] || own=--map-root-user
    # shellcheck disable=SC2086 # a word, or none
    ROOM_OF_ITS_OWN=1 unshare $own --mount --propagation private bash -uc '
        mount -t tmpfs -o size=48M tmpfs /dev/shm && . "$0/lib.sh" && . "$0/cases/room.sh"' \
        "$MACHINES_ROOT/tests/machines" || failed "machines on a full host ended early"
    return
fi

export VSHMEM_CLUSTER=${VSHMEM_CLUSTER}f
pool=/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER
fill() { dd if=/dev/zero of=/dev/shm/filler bs=64K status=none 2>/dev/null || true; }
kilobytes() { echo $(($(stat -c %b "$pool") / 2)); }

running() { # the machines that run, by their processes
    vshmem ps --json |
        field '[m["pid"] for c in told["clusters"] for m in c["machines"] if m["state"] == "running"]'
}
given() { vshmem run --vm vm1 -n 1 --no-prefix -- perl "$programs/given.pl" "$1"; }
# take VM: what the program says there, without the library's words on the call that fails
take() { vshmem run --vm "$1" -n 1 --no-prefix -e VSHMEM_LOG=off -- perl "$programs/take_all.pl" 2>&1; }

code "a cluster whose pool is larger than what there is does not come up" 125 vshmem up \
    -n 1 --no-net --reserve --pool-size 64M
contains "it is said how much there is" "it takes 64 MiB more, and /dev/shm/vshmem.$(id -u) has 47 MiB" \
    "$(cat "$work/out")"
contains "and what helps" "--reserve" "$(cat "$work/out")"
nothing_left "and nothing is left of it"
code "nor is a pool made that is to be reserved" 125 vshmem pool create large --size 64M --reserve
equal "of which nothing is left, either" "" "$(find /dev/shm -type f)"

if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --reserve --pool-size 32M >"$work/up" 2>&1; then
    failed "two machines come up where there is room for their pool" "$(cat "$work/up")"
    exit 1
fi
machines=$(running)
equal "all of the pool has memory" 32768 "$(kilobytes)"
code "another pool is made" 0 vshmem pool create later --size 8M
fill
code "which can't be granted when all is full" 125 vshmem grant --reserve later vm0
contains "it is said why" "could not reserve the pool" "$(cat "$work/out")"

first=$(take vm0)
contains "a machine is told that there is no more memory" " until error 12" "$first"
equal "after most of the pool, ${first%% *} MiB" yes "$([ "${first%% *}" -ge 16 ] && echo yes)"
take vm1 >"$work/taken" &
taker=$!
take vm0 >"$work/out" 2>&1
contains "two at once are told, too" " until error 12" "$(cat "$work/out")"
wait "$taker"
contains "both of them" " until error 12" "$(cat "$work/taken")"
# The small heap has grown meanwhile, by an eighth of the pool at the most.
as_much() { [ "$((${1%% *} + 4))" -ge "${first%% *}" ] && [ "${1#* }" = "until error 12" ] && echo yes; }
equal "a process of the host finds as much" yes \
    "$(as_much "$(on_host env VSHMEM_LOG=off perl "$programs/take_all.pl" 2>&1)")"
# For so long the back end would have given it back to the host.
sleep 3
equal "the pool keeps its memory" 32768 "$(kilobytes)"
equal "so the other machine finds as much" yes "$(as_much "$(take vm1)")"
equal "both machines run" "$machines" "$(running)"
value_is() { [ "$(on_host perl "$common/value.pl" 0x6666)" = "$1" ]; }
code "who dies there" 137 vshmem run --vm vm0 -n 1 -- perl "$common/hold.pl" 0x6666 3 kill
eventually "is cleaned up after" value_is 0
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"
vshmem down
nothing_left "nothing is left of machines on a full host"
find /dev/shm -type f -delete

# A sparse pool, larger than all that there is: machines ask the back end for what they touch.
if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --pool-size 64M >"$work/up" 2>&1; then
    failed "two machines with a sparse pool come up" "$(cat "$work/up")"
    exit 1
fi
machines=$(running)
equal "a sparse pool has little memory" yes "$([ "$(kilobytes)" -lt 8192 ] && echo yes)"
code "a segment is made while there is room" 0 given make
fill
contains "a machine is told that there is no more memory" " until error 12" "$(take vm0)"
equal "and touches what it was given before" kept "$(given use)"
rm /dev/shm/filler
# Memory that was given, but never written, goes back, too; of what could not be had as a whole as well.
few() { [ "$(kilobytes)" -lt 8192 ]; }
equal "a machine is refused a segment that is too large, and removes another" "no yes" \
    "$(given refused 2>"$work/why")"
contains "which says why" "there is no memory for 54 MiB" "$(cat "$work/why")"
eventually "all of that goes back to the host" few
take vm1 >"$work/taken" &
taker=$!
take vm0 >"$work/out" 2>&1
contains "two that want all of it at once are told, too" " until error 12" "$(cat "$work/out")"
wait "$taker"
contains "both of them" " until error 12" "$(cat "$work/taken")"
on_host perl "$programs/take_all.pl" >"$work/out" 2>&1
contains "and a process of the host" " until error 12" "$(cat "$work/out")"
# What tables and the small heap have had, they keep.
few() { [ "$(kilobytes)" -lt 16384 ]; }
eventually "the memory goes back to the host" few
first=$(take vm0)
equal "so there is as much for the next, ${first%% *} MiB" yes "$([ "${first%% *}" -ge 16 ] && echo yes)"
equal "both machines run" "$machines" "$(running)"
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"
# One that does not answer is waited for, until the next one does.
stopped=$(back_end)
kill -STOP "$stopped"
take vm1 >"$work/taken" 2>&1 &
taker=$!
sleep 2
kill -KILL "$stopped"
wait "$taker"
contains "a machine may ask while the back end is started anew" " until error 12" "$(cat "$work/taken")"
equal "and runs on" "$machines" "$(running)"
vshmem down
nothing_left "nothing is left of machines that asked for memory"

# Where nobody can be asked, it is as is said of it; and what is above would be seen.
if ! LIMIT=300 vshmem up -n 1 --no-net --no-doorbell --pool-size 32M >"$work/up" 2>&1; then
    failed "a machine without a doorbell comes up" "$(cat "$work/up")"
    exit 1
fi
fill
take vm0 >"$work/out" 2>&1 &
taker=$!
if has_kvm; then
    # KVM has the guest touch it again and again.
    sleep $((5 * slow))
    equal "what needs more of it stands still, and says nothing" "" "$(cat "$work/out")"
    rm /dev/shm/filler
    wait "$taker"
    contains "until there is some" " until error" "$(cat "$work/out")"
else
    has_died() { vshmem ps --json | grep -q died; }
    eventually "the machine that needs more of it is killed" has_died
    wait "$taker"
fi
vshmem down
nothing_left "nothing is left of it"
