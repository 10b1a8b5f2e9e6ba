# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# Machines of a cluster that are started anew while the others run: after they were killed, panicked or were wanted to. And a guest that
# reboots while its QEMU runs on.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}r
if ! LIMIT=300 vshmem up -n 3 --pool-size 64M >"$work/up" 2>&1; then
    failed "three machines come up" "$(cat "$work/up")"
    exit 1
fi
record=$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/cluster.json
pid_of() { # pid_of PLACE
    python3 -c "import json; print(json.load(open('$record'))['machines'][$1]['runs']['pid'])"
}
boot_of() { vshmem exec "$1" -- cat /proc/sys/kernel/random/boot_id; }

cat >"$work/hold.pl" <<'P'
my $set = semget(0x5656, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, 1, 0x1000)) or die "semop: $!";        # SEM_UNDO
sleep 600;
P
cat >"$work/value.pl" <<'P'
print semctl(semget(0x5656, 1, 0) // die("semget: $!"), 0, 12, 0) + 0;    # GETVAL
P
hold() { # hold VM: by a process that runs on
    vshmem run --vm "$1" -n 1 --no-prefix -- perl "$work/hold.pl" >"$work/held" 2>&1 &
    holder=$!
    eventually "$1 changes a semaphore with SEM_UNDO" value_is 1
}
value_is() {
    [ "$(on_host perl "$work/value.pl")" = "$1" ]
}
is_dead() { ! kill -0 "$1"; }

hold vm1
kill -KILL "$(pid_of 1)"
first=$(boot_of vm0)
code "a machine that was killed is started anew" 0 vshmem restart vm1
eventually "what it held is undone" value_is 0
equal "the others ran on" "$first" "$(boot_of vm0)"
hello_over_the_network "it is on the network again" vm2 vm1
hold vm1
before=$(boot_of vm1)
code "one that runs is started anew, too" 0 vshmem restart -q vm1
equal "and is another one then" yes "$([ "$(boot_of vm1)" != "$before" ] && echo yes)"
eventually "what it held is undone, too" value_is 0
equal "it is younger than the others" yes "$(vshmem ps --json | python3 -c 'import json, sys
up = [machine["up"] for machine in json.load(sys.stdin)["clusters"][0]["machines"]]
print("yes" if up[1] < min(up[0], up[2]) else up)')"

panicked=$(pid_of 0)
hold vm0
LIMIT=20 vshmem exec -n -u root vm0 -- sh -c 'echo c >/proc/sysrq-trigger' >"$work/out" 2>&1
eventually "a machine that panics ends" is_dead "$panicked"
code "two are started anew by one command" 0 vshmem restart vm0 vm2
eventually "what the one held that panicked is undone" value_is 0
hello_over_the_network "the network through the first is there again" vm1 vm2
code "a machine that there isn't can't be" 125 vshmem restart vm7
contains "that is said" "has no machine vm7" "$(cat "$work/out")"
code "nor one of no cluster" 125 vshmem restart -c none vm0
contains "that, too" "there is no cluster none" "$(cat "$work/out")"

# Only the guest: QEMU, its devices and their numbers stay.
has_booted() { now=$(LIMIT=5 vshmem exec -n vm1 -- cat /proc/sys/kernel/random/boot_id) && [ "$now" != "$before" ]; }
hold vm1
before=$(boot_of vm1)
qemu=$(pid_of 1)
python3 "$MACHINES_ROOT/tests/machines/qmp.py" "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/vm1/qmp.sock" \
    '{"execute": "set-action", "arguments": {"reboot": "reset"}}' system_reset >/dev/null
eventually "a guest that was reset comes back" has_booted
equal "in the same QEMU" "$qemu" "$(pid_of 1)"
eventually "whoever ran a command in it does not wait for ever" is_dead "$holder"
ended=0
wait "$holder" || ended=$?
equal "but ends with Vshmem's own code" 125 "$ended"
contains "and is told why" "the machine was reset meanwhile" "$(cat "$work/held")"
eventually "what it held before is undone" value_is 0
hold vm1
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"

vshmem down
wait
nothing_left "nothing is left of machines that were started anew"
export VSHMEM_CLUSTER=$cluster
