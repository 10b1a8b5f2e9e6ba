# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # lib.sh sets it; machines expand what is quoted
# Slim machines: their initramfs is all that they have. SLIM_MACHINES (3) says how many; 16 are the example's.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}s
count=${SLIM_MACHINES:-3}
sed "s/count = 16/count = $count/" "$MACHINES_ROOT/examples/cluster/slim.toml" >"$work/slim.toml"
# One with this host's root, to compare.
printf '[[machines]]\nname = "plain"\nmemory = "256M"\n' >>"$work/slim.toml"
"${CC:-cc}" -O2 -static -o "$work/fwq" "$programs/fwq.c"
if ! LIMIT=300 vshmem up "$work/slim.toml" --timeout 250 >"$work/up" 2>&1; then
    failed "slim machines come up" "$(cat "$work/up")"
    exit 1
fi
passed "$count slim machines come up: $(tail -n 1 "$work/up")"

# When a machine took commands, for how long its virtual core had run on one of the host's by then, and how
# much of its memory is taken, in KiB.
began() { sed -n 's/.*commands are taken \([0-9.]*\) s after.*/\1/p' \
    "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/$1/console.log" | tail -n 1; }
spent() { sed 's/.*) //' "/proc/$(pid_of "$1")/task/$(processor_of "$1")/stat" |
    awk -v hz="$(getconf CLK_TCK)" '{ print ($12 + $13) / hz }'; }
taken() { vshmem exec "$1" -- cat /proc/meminfo |
    awk '/^MemTotal/ { total = $2 } /^MemAvailable/ { print total - $2 }'; }
for machine in vm0 plain; do
    echo "        $machine took commands after $(began "$machine") s, having run for $(spent "$machine")"
done
for machine in vm0 plain; do
    echo "        $machine: $(taken "$machine") KiB are taken; quanta of a millisecond:" \
        "$(vshmem exec "$machine" -- "$work/fwq" 1000 1000000)"
done
holds "less than 64 MiB of a machine's memory are taken" test "$(taken vm0)" -lt 65536
equal "they have nothing of this host's system" "" "$(vshmem exec vm0 -- sh -c 'ls /usr/share 2>/dev/null')"
equal "but a shell" "vm0" "$(vshmem exec vm0 -- sh -c 'hostname')"
equal "and what is shared" "$(wc -c <"$work/fwq")" "$(vshmem exec vm0 -- sh -c "wc -c <$work/fwq")"
echo '#include <sys/shm.h>
int main(void) { return shmget(0x7777, 4096, IPC_CREAT | 0600) < 0; }' | "${CC:-cc}" -x c -o "$work/make" -
contains "what commands make in one of them" 0x00007777 "$(vshmem run --no-prefix --vm vm0 -- \
    "$work/make" && vshmem exec vm1 -- "$VSHMEM_BIN" ipcs)"
vshmem down
nothing_left "nothing is left of slim machines"
export VSHMEM_CLUSTER=$cluster
