# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# vshmem balance with real machines: what somebody has put on one core gets two, and at the end all may run
# again where they might before, even if it was killed.

if [ "$(nproc)" -lt 2 ]; then
    echo "skip    balancing needs two processors"
    exit 0
fi
need_machines
balance=${VSHMEM_BALANCE:-${VSHMEM_BIN%/*}/vshmem-balance}

may_run() { taskset -pc "$1" | sed 's/.*: //'; }
apart() { [ "$(may_run "$first")" != "$(may_run "$second")" ]; }

first=$(processor_of vm0) second=$(processor_of vm1)
were="$(may_run "$first") $(may_run "$second")"
core=$(may_run $$ | sed 's/[-,].*//')
for thread in "$first" "$second"; do taskset -pc "$core" "$thread" >/dev/null; done
by_hand() { [ "$(may_run "$first") $(may_run "$second")" = "$core $core" ]; }
workers=()
for vm in vm0 vm1; do
    "$VSHMEM_BIN" exec -n "$vm" -- sh -c 'while :; do :; done' >"$work/out" 2>&1 &
    workers+=($!)
done
busy() { [ "$("$balance" --once --dry-run --json | field 'len(told["pins"])')" = 2 ]; }
eventually "both machines want a core" busy
holds "who is asked what to do does nothing" by_hand

"$balance" --explain >"$work/balanced" 2>&1 &
balancing=$!
eventually "what shares a core gets two" apart
contains "it is told why" "$VSHMEM_CLUSTER/vm" "$(cat "$work/balanced")"
code "a second one is refused" 125 "$balance"
contains "the reason is said" "another vshmem balance is at work" "$(cat "$work/out")"
kill -INT "$balancing"
wait "$balancing"
equal "it ends well when it is interrupted" 0 $?
holds "all may run again where they might before" by_hand
holds "its notes are gone" test ! -e "$XDG_RUNTIME_DIR/vshmem/balance.json"

"$balance" >"$work/balanced" 2>&1 &
balancing=$!
eventually "another one moves them, too" apart
kill -KILL "$balancing"
wait "$balancing" 2>/dev/null
holds "when it is killed they stay" apart
code "what it has left is put back" 0 "$balance" --restore
holds "all may run where they might before" by_hand

# This host taken for one with two nodes, of a core each: the kernel says of all memory that it is on node 0.
"$balance" --explain --topology 'pack:2 [numa] core:1 pu:1' >"$work/balanced" 2>"$work/warned" &
balancing=$!
eventually "on two nodes, too, each gets a core" apart
# What CI runs beside this takes the cores, and memory moves only to where its machine has stayed for a while.
if [ "${CI:-}" != true ]; then
    eventually "memory should follow the one that is far from it" \
        grep -q 'from node 0 to node 1' "$work/warned"
    contains "and can't, which is said" "can't be moved" "$(cat "$work/warned")"
fi
kill -INT "$balancing"
wait "$balancing"
holds "here, too, all may run where they might before" by_hand

kill "${workers[@]}" 2>/dev/null
wait "${workers[@]}" 2>/dev/null
read -r one other <<<"$were"
taskset -pc "$one" "$first" >/dev/null && taskset -pc "$other" "$second" >/dev/null
