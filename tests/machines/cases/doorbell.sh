# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Doorbells between machines, and a back end that is killed between them. Without the driver, whose registers
# the test uses itself.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}b

doorbell() { # doorbell VM WORD...
    vshmem exec -u root "$1" -- /usr/bin/python3 "$programs/doorbell.py" "${@:2}"
}

# status EXPRESSION: a part of what the back end tells; $pool is the cluster's pool
pool="told['pools'][0]"
status() {
    vshmem agent --status --json | field "$1"
}

if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --driver none >"$work/up" 2>&1; then
    failed "machines with doorbells come up" "$(cat "$work/up")"
    exit 1
fi
passed "machines with doorbells come up: $(tail -n 1 "$work/up")"
equal "the back end knows them" "vm0 vm1" "$(status "*sorted(p['name'] for p in ${pool}['peers'])")"

first=$(doorbell vm0 id)
second=$(doorbell vm1 id)
equal "each has the number that the back end says" \
    "$(status "*sorted(p['peer'] for p in ${pool}['peers'])")" \
    "$(printf '%s\n' "$first" "$second" | sort -n | tr '\n' ' ' | sed 's/ $//')"

doorbell vm0 ring "$second" 0
equal "a machine rings another" 1 "$(doorbell vm1 pending)"
rung=$(status "${pool}['rung']")
was_rung() { [ "$(status "${pool}['rung']")" -gt "$rung" ]; }
doorbell vm0 ring 0 1
eventually "a machine rings the host" was_rung

# The device's memory is the pool: a queue goes from machine to machine.
vshmem run --vm vm0 -n 1 --no-prefix -- perl -e \
    '$q = msgget(0x7777, 01600); msgsnd($q, pack("l! a*", 1, "over the pool"), 0) or die $!'
heard=$(vshmem run --vm vm1 -n 1 --no-prefix -- perl -e \
    '$q = msgget(0x7777, 0); msgrcv($q, $m, 64, 0, 0); print substr($m, 8)')
equal "the pool works as with a plain device" "over the pool" "$heard"
is_member() { [ "$(status "len([m for m in ${pool}['members'] if m['peer'] and m['alive']])")" = "$1" ]; }
eventually "both machines are members with numbers" is_member 2

old=$(status "told['pid']")
kill -KILL "$old"
serves() { [ "$(status "told['pid']" 2>/dev/null)" != "" ]; }
eventually "a killed back end is replaced" serves
equal "by another process" yes "$([ "$(status "told['pid']")" != "$old" ] && echo yes)"
equal "which knows the machines" "vm0 vm1" "$(status "*sorted(p['name'] for p in ${pool}['peers'])")"

doorbell vm0 ring "$second" 1
equal "the machines ring each other as before" 3 "$(doorbell vm1 pending)"
doorbell vm1 ring "$first" 0
equal "both ways" 1 "$(doorbell vm0 pending)"
rung=$(status "${pool}['rung']")
doorbell vm1 ring 0 0
eventually "and the host" was_rung
socket=$(status "${pool}['socket']")
equal "who joins now finds them" "$(printf '%s\n' "$first" "$second" | sort -n | tr '\n' ' ')" \
    "$(python3 "$programs/doorbell.py" join "$socket" 1) "
is_pending() { [ "$(doorbell vm0 pending)" = "$1" ]; }
eventually "and rings them" is_pending 3

# A later QEMU, after the restart: it takes part, paused as it is.
qemu-system-x86_64 -name late -nodefaults -display none -machine q35 -S \
    -chardev "socket,id=bell,path=$socket" -device ivshmem-doorbell,vectors=2,chardev=bell 2>"$work/late" &
late=$!
is_there() { status "*[p['name'] for p in ${pool}['peers']]" | grep -q "$1"; }
eventually "a later machine joins" is_there late
late_number=$(status "[p['peer'] for p in ${pool}['peers'] if p['name'] == 'late'][0]")
doorbell vm0 ring "$late_number" 0
kill -KILL "$late"
wait "$late" 2>/dev/null || true
equal "its QEMU had nothing to complain about" "" "$(cat "$work/late")"
is_gone() { ! is_there "$1"; }
eventually "and is gone when it is killed" is_gone late

equal "all live so far" 2 "$(status "len([m for m in ${pool}['members'] if m['peer'] and m['alive']])")"
kill -KILL "$(status "[p['pid'] for p in ${pool}['peers'] if p['name'] == 'vm1'][0]")"
eventually "a machine that dies is no living member" is_member 1

vshmem down
eventually "nothing is left of the back end" test ! -e "$XDG_RUNTIME_DIR/vshmem/.agent"
nothing_left "nothing is left of machines with doorbells"
export VSHMEM_CLUSTER=$cluster
