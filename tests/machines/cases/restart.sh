# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# Machines of a cluster that are started anew while the others run: after they were killed, panicked or were
# wanted to. And a guest that reboots while its QEMU runs on.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}r
if ! LIMIT=300 vshmem up -n 3 --pool-size 64M >"$work/up" 2>&1; then
    failed "three machines come up" "$(cat "$work/up")"
    exit 1
fi
boot_of() { vshmem exec "$1" -- cat /proc/sys/kernel/random/boot_id; }

hold() { # hold VM: by a process that runs on
    vshmem run --vm "$1" -n 1 --no-prefix -- perl "$common/hold.pl" 0x5656 1 >"$work/held" 2>&1 &
    holder=$!
    eventually "$1 changes a semaphore with SEM_UNDO" value_is 1
}
value_is() {
    [ "$(on_host perl "$common/value.pl" 0x5656)" = "$1" ]
}
is_dead() { ! kill -0 "$1"; }

hold vm1
kill -KILL "$(pid_of vm1)"
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
read -r first_up second_up third_up <<<"$(vshmem ps --json |
    field '*[int(m["up"]) for m in told["clusters"][0]["machines"]]')"
holds "it is younger than the others" test "$second_up" -lt "$first_up" -a "$second_up" -lt "$third_up"

panicked=$(pid_of vm0)
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
has_booted() { now=$(LIMIT=5 vshmem exec -n vm1 -- cat /proc/sys/kernel/random/boot_id) &&
    [ "$now" != "$before" ]; }
hold vm1
before=$(boot_of vm1)
qemu=$(pid_of vm1)
monitor vm1 '{"execute": "set-action", "arguments": {"reboot": "reset"}}' system_reset >"$work/out"
eventually "a guest that was reset comes back" has_booted
equal "in the same QEMU" "$qemu" "$(pid_of vm1)"
eventually "whoever ran a command in it does not wait for ever" is_dead "$holder"
ended=0
wait "$holder" || ended=$?
equal "but ends with Vshmem's own code" 125 "$ended"
contains "and is told why" "the machine was reset meanwhile" "$(cat "$work/held")"
if has_driver; then
    # Its kernel joins the pool anew when its front end does.
    WITHIN=90 eventually "what it held before is undone" value_is 0
else
    echo "skip    what a guest held that was reset: without vshmem.ko nobody is told of its reset"
    vshmem restart -q vm1
    eventually "what it held before is undone by a restart" value_is 0
fi
hold vm1
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"

vshmem down
wait
nothing_left "nothing is left of machines that were started anew"
export VSHMEM_CLUSTER=$cluster
