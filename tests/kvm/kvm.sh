# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# What only KVM does: rings that go from kernel to kernel past QEMU, pools with doorbells that are taken away,
# memory types, processors that are taken away from a machine or move to another core. And a machine's memory
# on a node far from its processor, as the emulated machine with KVM has one. Two machines.

pool=kvm-$VSHMEM_CLUSTER
others=()
clean_up() {
    [ ${#others[@]} -eq 0 ] || kill "${others[@]}" 2>/dev/null
    "$VSHMEM_BIN" pool rm --force "$pool" >/dev/null 2>&1 || true
}

cc -O1 -Wall -Wextra -o "$work/woken" "$programs/woken.c" &&
    cc -O1 -Wall -Wextra -o "$work/memory" "$MACHINES_ROOT/tests/kvm/memory.c" || exit 1
# A node without processors, from which the machines have their memory then.
far=
for node in /sys/devices/system/node/node[0-9]*; do
    [ -n "$(cat "$node/cpulist" 2>/dev/null || echo none)" ] || far=${node##*node}
done
printf '#!/bin/sh\nexec %s "%s" "$@"\n' "${far:+/usr/bin/python3 $MACHINES_ROOT/tests/kvm/prefer.py $far}" \
    "$VSHMEM_BIN" >"$work/far"
chmod +x "$work/far"
if ! VSHMEM_BIN=$work/far LIMIT=300 vshmem up -n 2 --no-net --doorbell --spare-pools 2 --largest-pool 64M \
    >"$work/up" 2>&1; then
    failed "machines come up on KVM" "$(cat "$work/up")"
    exit 1
fi
passed "machines come up on KVM: $(tail -n 1 "$work/up")"
contains "ps says so" " kvm " "$(vshmem ps -l)"
contains "the driver maps the pool cached, and waiters are woken" "cached, sleep" \
    "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"

in_machine() { # in_machine VM COMMAND...
    vshmem run --vm "$1" -n 1 --no-prefix -- "${@:2}"
}
if [ "$slow" -eq 1 ]; then
    code "the pool is as fast as the machine's own memory" 0 in_machine vm0 "$work/memory"
    echo "        $(cat "$work/out")"
else
    echo "skip    the speed of the pool: an emulated processor has no caches"
fi

qemu() { pgrep -f "^qemu-system-x86_64 -name vshmem-$VSHMEM_CLUSTER-$1 "; }
# How often the main loop of a machine's QEMU had something to do.
turns() { awk '/^voluntary/ { print $2 }' "/proc/$(qemu "$1")/status"; }
play() { # play ROUNDS: two processes wake each other
    vshmem run --vm vm0 -n 1 --no-prefix -- "$work/woken" ping "$1" : --vm vm1 -n 1 -- "$work/woken" pong "$1"
}

# Rings: an eventfd that KVM writes to and KVM reads, in the kernel. A command takes turns of QEMU as well: as
# many as one that plays a single round.
played() { # played ROUNDS: the turns that it takes
    local before
    before=$(($(turns vm0) + $(turns vm1)))
    play "$1" >"$work/out" 2>&1 || return
    echo $(($(turns vm0) + $(turns vm1) - before))
}
few=$(played 1)
rung=$(($(rings vm0) + $(rings vm1)))
turned=$(played 1500)
rung=$(($(rings vm0) + $(rings vm1) - rung))
equal "machines wake each other by more than a hundred rings ($rung)" yes "$([ "$rung" -gt 100 ] && echo yes)"
equal "which QEMU has no part in ($turned turns of its main loops, $few for one round)" yes \
    "$([ "${turned:-$rung}" -lt $((${few:-0} + rung / 2)) ] && echo yes)"

# A pool with doorbells, which only KVM lets go of.
code "a pool is made" 0 vshmem pool create "$pool" --size 64M
for vm in vm0 vm1; do
    code "and granted to $vm" 0 vshmem grant "$pool" "$vm"
    cat "$work/out"
done
equal "both can be woken there" "2" "$(vshmem run -- "$VSHMEM_BIN" pool ls | grep -c "$pool.*cached, sleep")"
in_pool vm0 /usr/bin/python3 "$common/hear.py" 2 >"$work/heard" 2>"$work/waits" &
waiter=$!
eventually "a process waits in it" grep -q waits "$work/waits"
code "it is sent a message" 0 in_pool vm1 perl "$common/tell.pl" woken
eventually "and woken" grep -q woken "$work/heard"
told=$(vshmem revoke "$pool" vm0 --json)
passed "the pool is taken away: $told"
wait "$waiter"
equal "the process is told" "woken Identifier removed" "$(tr '\n' ' ' <"$work/heard" | sed 's/ $//')"
code "its machine runs on" 0 vshmem exec vm0 -- true
code "without the pool" 1 sh -c "'$VSHMEM_BIN' exec vm0 -- '$VSHMEM_BIN' pool ls | grep '$pool'"
code "the other one keeps it" 0 in_pool vm1 perl -e 'defined msgget(0x4711, 0) or die $!'
code "until it is taken from it, too" 0 vshmem revoke "$pool" vm1

# A process that waits costs nothing: neither it nor KVM, which polls for a halted processor at first, spins.
percent() { # percent VM: of a processor that its QEMU takes, over five seconds
    local before
    before=$(awk '{ print $14 + $15 }' "/proc/$(qemu "$1")/stat") # ticks of 10 ms
    sleep 5
    echo $(($(awk '{ print $14 + $15 }' "/proc/$(qemu "$1")/stat") / 5 - before / 5))
}
idle=$(percent vm0)
in_machine vm0 "$work/woken" take semop &
waiter=$!
eventually "a process waits" waits_in vm0
took=$(percent vm0)
equal "a machine whose process waits takes hardly more of a processor than an idle one ($took %, $idle %)" \
    yes \
    "$([ "$took" -lt $((idle + 10 * slow)) ] && echo yes)"
code "the process is woken" 0 in_machine vm1 "$work/woken" give semop
wait "$waiter"

# Processors that are taken away, and that move. The machines' threads and one that only counts share a core.
steal() { vshmem exec "$1" -- awk '/^cpu / { print $9 }' /proc/stat; }
before=$(steal vm0)
core=$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')
taskset -c "$core" sh -c 'while :; do :; done' &
others=($!)
for vm in vm0 vm1; do taskset -apc "$core" "$(qemu "$vm")" >"$work/out"; done
code "machines play on a core that they don't have for themselves" 0 play 200
after=$(steal vm0)
equal "of which they know ($((after - before)) ticks were stolen)" yes \
    "$([ "$after" -gt "$before" ] && echo yes)"
code "one works there for a while" 124 vshmem exec vm0 -- timeout $((5 * slow)) sh -c 'while :; do :; done'
code "vshmem doctor finds in the machine that its core is taken" 1 vshmem doctor --vm vm0 steal
contains "as its kernel counts it" "The hypervisor took " "$(cat "$work/out")"
code "and on the host, why" 1 vshmem doctor shared-cores
for vm in vm0 vm1; do
    contains "it names $vm" "vshmem-$VSHMEM_CLUSTER-$vm ($(qemu $vm))" "$(cat "$work/out")"
done
if [ "$(nproc)" -gt 1 ]; then
    (while sleep 0.01; do for vm in vm0 vm1; do taskset -apc "$(($(date +%s%N) / 10000000 % $(nproc)))" \
        "$(qemu "$vm")" >/dev/null; done; done) &
    others+=($!)
    code "and while they move from core to core" 0 play 1000
else
    echo "skip    machines that move from core to core: there is one"
fi
kill "${others[@]}"
others=()

# Memory follows a processor that can't come to it.
far_pages() { # far_pages VM: of its own memory that are there, of 4 KiB
    awk -v on="^N$far=" '/file=/ && !/file=\/memfd:/ { next }
        { size = 4 } match($0, /kernelpagesize_kB=[0-9]+/) { size = substr($0, RSTART + 18, RLENGTH - 18) }
        { for (i = 3; i <= NF; i++) if ($i ~ on) pages += substr($i, length(on)) * size / 4 }
        END { print pages + 0 }' "/proc/$(qemu "$1")/numa_maps"
}
few_are_far() { [ "$(far_pages vm0)" -lt $((before / 4)) ]; }
if [ -n "$far" ]; then
    before=$(far_pages vm0)
    equal "a machine's memory is far from its processor ($before pages)" yes \
        "$([ "$before" -gt 10000 ] && echo yes)"
    vshmem exec vm0 -- sh -c 'while :; do :; done' >"$work/out" 2>&1 &
    others=($!)
    "${VSHMEM_BIN%/*}/vshmem-balance" --explain >"$work/balanced" 2>&1 &
    others+=($!)
    WITHIN=120 eventually "vshmem balance moves it while the machine works" few_are_far
    contains "and says so" "vm0: " "$(grep "of memory from node $far to node" "$work/balanced")"
    kill "${others[@]}"
    others=()
    code "the machine has noticed nothing" 0 vshmem exec vm0 -- true
    vshmem exec vm0 -- true 2>/dev/null || { vshmem ps && vshmem logs vm0 | tail -n 20; }
    echo "        $before pages before, $(far_pages vm0) after; $(grep -c 'of memory' "$work/balanced") moves"
else
    echo "skip    memory that is far from processors: each memory node has some"
fi
vshmem down >"$work/out" 2>&1
