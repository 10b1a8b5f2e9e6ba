# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# How clusters end, also badly.
need_machines

code "a cluster can't be started twice" 125 vshmem up
code "one that isn't there can't be stopped" 125 vshmem down -c other

# A machine that stands still, by a signal to QEMU or by its monitor, and a command that is to be ended by
# ctrl-C, or by SIGTERM.
stand_still() { if [ "$1" = QEMU ]; then kill -STOP "$(pid_of vm0)"; else monitor vm0 stop >"$work/out"; fi; }
go_on() { if [ "$1" = QEMU ]; then kill -CONT "$(pid_of vm0)"; else monitor vm0 cont >"$work/out"; fi; }
ends_by() { # ends_by SIGNAL CODE: the command does, and says why
    local began=$SECONDS ended=0
    kill "-$1" "$caller"
    wait "$caller" || ended=$?
    equal "a command there can be ended by SIG$1" "$2" "$ended"
    equal "soon" yes "$([ $((SECONDS - began)) -lt $((8 * slow)) ] && echo yes)"
    contains "with the reason" "vm0: the machine does not answer" "$(sed 's/interrupted: //' "$work/said")"
}
# A process blocks signals for moments only, too.
handles_int() { has_int && sleep 0.1 && has_int; }
has_int() {
    local mask
    grep -qx vshmem "/proc/$caller/comm" || return
    for mask in $(sed -n 's/^Sig\(Blk\|Cgt\):\s*//p' "/proc/$caller/status"); do
        [ $((0x$mask & 2)) -eq 0 ] || return 0
    done
    return 1
}
for which in QEMU monitor; do
    env --default-signal=INT "$VSHMEM_BIN" exec vm0 -- sh -c 'echo runs; sleep 2718; sleep 2718' \
        >"$work/heard" 2>"$work/said" &
    caller=$!
    eventually "a command runs" grep -q runs "$work/heard"
    stand_still $which
    if [ $which = QEMU ]; then ends_by INT 130; else ends_by TERM 143; fi
    # As many as QEMU's socket keeps, and more.
    for _ in 1 2 3; do
        env --default-signal=INT "$VSHMEM_BIN" exec vm0 -- true >"$work/heard" 2>"$work/said" &
        caller=$!
        eventually "a command there waits, and handles SIGINT" handles_int
        ends_by INT 130
        [ $which = QEMU ] || break
    done
    go_on $which
    if [ $which = QEMU ]; then
        shown=$(on_terminal wait:runs "run:kill -STOP $(pid_of vm0)" 'send:\x03' -- \
            "$VSHMEM_BIN" exec -t vm0 -- sh -c 'trap "" INT; echo runs; sleep 2718; sleep 2718')
        contains "one in a terminal, too" "vm0: the machine does not answer" "$shown"
        contains "which is as it was then" "modes are as before
code 130" "$shown"
        go_on QEMU
    fi
    eventually "it is gone when the machine goes on (by $which)" vshmem exec vm0 \
        -- sh -c '! pgrep -f "sleep 271[8]"'
done

vshmem run --vm vm1 -- perl "$common/hold.pl" 0x5555 1 >"$work/held" 2>&1 &
holder=$!
eventually "a machine holds a semaphore" grep -q held "$work/held"
vshmem run --vm vm0 -- perl "$programs/await.pl" 0x5555 >"$work/awaited" 2>&1 &
waiter=$!
eventually "another waits for it" grep -q waiting "$work/awaited"

kill -9 "$(pid_of vm1)"
wait "$holder"
eventually "a machine that died is shown so" sh -c "'$VSHMEM_BIN' ps | grep -q 'vm1 *died'"
vshmem check "cluster.$VSHMEM_CLUSTER" >"$work/out" 2>&1
eventually "what it held is undone, at the latest by vshmem check" grep -q undone "$work/awaited"
wait "$waiter"
code "it takes no commands" 125 vshmem exec vm1 -- true
code "the other one does" 0 vshmem exec vm0 -- true
code "the rest is stopped" 0 vshmem down
nothing_left "nothing is left of it"

# interrupted_when MOMENT COMMAND...: ctrl-C on vshmem up as soon as the command succeeds. No fixed time would
# do: how long machines take to boot differs by ten between hosts.
interrupted_when() {
    local moment=$1 up code=0
    shift
    # What a shell starts in the background ignores ctrl-C unless told otherwise.
    # Those that thaw are up within moments.
    env --default-signal=INT "$VSHMEM_BIN" up --cold >"$work/out" 2>&1 &
    up=$!
    until "$@" >"$work/moment" 2>&1; do
        kill -0 "$up" 2>/dev/null || break
        sleep 0.02
    done
    kill -INT "$up" 2>/dev/null
    wait "$up" || code=$?
    equal "vshmem up ends when it is interrupted $moment" 130 "$code"
    nothing_left "nothing is left of it"
    vshmem down >"$work/out" 2>&1 || true
}
has_started() { # has_started VM: its QEMU runs
    pgrep -f "^qemu-system-x86_64 -name vshmem-$VSHMEM_CLUSTER-$1 "
}
boots_for_a_moment() {
    has_started vm1 && sleep 0.5
}
interrupted_when "while it prepares" test -e "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER"
interrupted_when "when the first machine has started" has_started vm0
interrupted_when "while the machines boot" boots_for_a_moment

code "a cluster comes up" 0 vshmem up
env --default-signal=INT "$VSHMEM_BIN" grow >"$work/grown" 2>&1 &
grow=$!
eventually "a machine is added" has_started vm2
kill -INT "$grow"
code=0
wait "$grow" || code=$?
equal "vshmem grow ends when it is interrupted" 130 "$code"
equal "which is all that it says of the end" "vshmem: interrupted; what was started has been stopped again" \
    "$(tail -n 1 "$work/grown")"
equal "the machine is no part of the cluster" "vm0 vm1" "$(vshmem ps --json |
    field '*[machine["name"] for machine in told["clusters"][0]["machines"]]')"
before=$(pid_of vm1)
env --default-signal=INT "$VSHMEM_BIN" restart vm1 >"$work/restarted" 2>&1 &
restart=$!
eventually "a machine is turned off" sh -c "! kill -0 $before"
kill -INT "$restart"
code=0
wait "$restart" || code=$?
equal "vshmem restart ends when it is interrupted" 130 "$code"
contains "and says how to go on" "vshmem restart -c $VSHMEM_CLUSTER" "$(cat "$work/restarted")"
code "which works" 0 vshmem restart
code "the cluster is stopped" 0 vshmem down
nothing_left "nothing is left of it"

"$VSHMEM_BIN" up >"$work/out" 2>&1 &
up=$!
eventually "a cluster is starting" has_started vm1
kill -KILL "$up"
wait "$up" 2>/dev/null
code "a half-started cluster can be stopped" 0 vshmem down
nothing_left "nothing is left of it"

# QEMU that ends at once: whoever notices it first, what it said is told.
mkdir "$work/short"
unheard=
for delay in 0 0 0 0.01 0.03 0.1 0.3; do
    printf '#!/bin/sh\nsleep %s\necho "out of luck" >&2\nexit 1\n' "$delay" >"$work/short/qemu-system-x86_64"
    chmod 755 "$work/short/qemu-system-x86_64"
    PATH=$work/short:$PATH vshmem up -n 2 --accel tcg --doorbell >"$work/out" 2>&1
    grep -q "did not boot" "$work/out" && grep -q "^    out of luck" "$work/out" ||
        unheard+="$(cat "$work/out")"
done
equal "what QEMU says that ends at once is told" "" "$unheard"

code "machines without enough memory are refused" 2 vshmem up --memory 1M
code "a pool of an odd size is refused" 2 vshmem up --pool-size 3M
nothing_left "nothing is left of them"

LIMIT=300 code "three machines come up" 0 vshmem up -n 3 --pool-size 16M --quiet
hello_over_the_network "the second and the third reach each other through the first" vm1 vm2
code "something is left in the pool" 0 vshmem run --vm vm1 \
    -n 1 -- perl -e 'semctl(semget(0x5757, 1, 01600) // die, 0, 16, 7) or die'
for vm in vm0 vm1 vm2; do
    kill -9 "$(pid_of "$vm")"
done
all_died() { [ "$(vshmem ps 2>"$work/said" | grep -c "^$VSHMEM_CLUSTER .* died ")" = 3 ]; }
eventually "when all machines have died, vshmem ps shows it" all_died
contains "and says what can be done" "vshmem restart -c $VSHMEM_CLUSTER" "$(cat "$work/said")"
code "it is not started over" 125 vshmem up
code "its pool is not removed" 1 vshmem pool rm "cluster.$VSHMEM_CLUSTER"
code "a restart that can't succeed does nothing" 125 bash -c "ulimit -v 300000; '$VSHMEM_BIN' restart"
LIMIT=300 code "all are started anew" 0 vshmem restart -q
equal "with what was in the pool" 7 "$(vshmem run --vm vm2 -n 1 --no-prefix -- perl "$common/value.pl" \
    0x5757)"
hello_over_the_network "and their network" vm2 vm1
before=$(pid_of vm0)
code "nor does it harm to a machine that runs" 125 bash -c "ulimit -v 300000; '$VSHMEM_BIN' restart vm0"
equal "which runs on" "$before" "$(pid_of vm0)"
code "a pool that machines have is not removed" 1 vshmem pool rm "cluster.$VSHMEM_CLUSTER"
vshmem down
nothing_left "nothing is left of them"
