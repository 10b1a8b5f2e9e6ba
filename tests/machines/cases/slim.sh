# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # lib.sh sets it; machines expand what is quoted
# Slim machines: their initramfs is all that they have. SLIM_MACHINES (3) says how many; 16 are the example's.
# With MACHINES_FULL a machine that boots Debian's cloud image is compared with them.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}s
count=${SLIM_MACHINES:-3}
sed "s/count = 16/count = $count/" "$MACHINES_ROOT/examples/cluster/slim.toml" >"$work/slim.toml"
# One with this host's root, to compare.
printf '[[machines]]\nname = "plain"\nmemory = "256M"\n' >>"$work/slim.toml"
compared="vm0 plain"
if [ -n "${MACHINES_FULL:-}" ]; then
    printf '[[machines]]\nname = "debian"\nmemory = "512M"\nimage = "%s.qcow2"\n' \
        "$("$MACHINES_ROOT/tests/machines/image.sh")" >>"$work/slim.toml"
    compared="$compared debian"
fi
"${CC:-cc}" -O2 -static -o "$work/fwq" "$programs/fwq.c"
if ! LIMIT=1600 vshmem up "$work/slim.toml" --cold --timeout 1500 >"$work/up" 2>&1; then
    failed "slim machines come up" "$(cat "$work/up")"
    exit 1
fi
passed "$count slim machines come up: $(tail -n 1 "$work/up")"
# Sixteen have a minute of two processors. What they had of them does not depend on what else the host does.
pids=()
for ((n = 0; n < count; n++)); do
    pids+=("$(pid_of "vm$n")")
done
took=$(time_of "${pids[@]}")
echo "        they have had $took s of processors"
holds "sixteen come up in a minute on two processors" \
    awk -v took="$took" -v count="$count" 'BEGIN { exit !(took / count < 60 * 2 / 16) }'
took=$({ TIMEFORMAT='%3U + %3S' && time "$VSHMEM_BIN" ps >/dev/null; } 2>&1)
holds "vshmem ps takes $took s of a processor, less than 0.2" \
    awk -v took="$took" 'BEGIN { split(took, t, " . "); exit !(t[1] + t[2] < 0.2) }'

# When a machine's first program ran and when it took commands, both by its own clock; for how long its core
# had run on one of the host's by now; its memory that is taken, and its QEMU's, in KiB.
first() { vshmem exec -u root "$1" -- dmesg | sed -n 's/^\[ *\([0-9.]*\)\] Run .* as init process/\1/p'; }
began() { sed -n 's/.*commands are taken \([0-9.]*\) s after.*/\1/p' \
    "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/$1/console.log" | tail -n 1; }
spent() { time_of "$(pid_of "$1")/task/$(processor_of "$1")"; }
taken() { vshmem exec "$1" -- cat /proc/meminfo |
    awk '/^MemTotal/ { total = $2 } /^MemAvailable/ { print total - $2 }'; }
# Buffers of a machine's serial ports, in KiB: with QEMU 10 8 times as many as with 7.2.
buffers() { vshmem exec -u root "$1" -- cat /proc/slabinfo |
    awk '$1 == "kmalloc-4k" { print $3 * $4 / 1024 }'; }
# Debian's kernel for clouds has no 9p, by which others see the program.
quanta() { vshmem exec "$1" -- sh -c 'cat >/tmp/fwq && chmod 755 /tmp/fwq && exec /tmp/fwq 1000 1000000' \
    <"$work/fwq"; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$(pid_of "$1")/status"; }
echo "        machine  first program  commands  core ran  taken KiB  QEMU's KiB   quanta of a millisecond"
for machine in $compared; do
    printf '        %-8s %11s s %7s s %7s s %10s %11s   %s\n' "$machine" "$(first "$machine")" \
        "$(began "$machine")" "$(spent "$machine")" "$(taken "$machine")" "$(resident "$machine")" \
        "$(quanta "$machine" | tee "$work/quanta.$machine")"
    holds "quanta of $machine were measured" grep -q median "$work/quanta.$machine"
done
if [ -n "${MACHINES_FULL:-}" ]; then
    holds "Debian's system takes longer" \
        awk -v slim="$(began vm0)" -v debian="$(began debian)" 'BEGIN { exit !(slim < debian) }'
    holds "and more memory" test "$(taken vm0)" -lt "$(taken debian)"
fi

# Four times as fast a machine's clock once ran, on a busy host. It is read after one moment of this host's
# clock and before the next one.
uptime_of() { vshmem exec "$1" -- cat /proc/uptime | cut -d' ' -f1; }
keeps_pace() { # keeps_pace MACHINE
    local host=("$EPOCHREALTIME") from to
    from=$(uptime_of "$1")
    host+=("$EPOCHREALTIME")
    sleep 3
    host+=("$EPOCHREALTIME")
    to=$(uptime_of "$1")
    host+=("$EPOCHREALTIME")
    awk -v there="$from $to" -v here="${host[*]}" 'BEGIN {
        split(there, t); split(here, h); passed = t[2] - t[1]
        least = h[3] - h[2]; most = h[4] - h[1]
        printf "%.2f s passed there, %.2f to %.2f here\n", passed, least, most
        exit !(passed > 0.95 * least - 0.02 && passed < 1.05 * most + 0.02)
    }'
}
holds "a machine's clock goes as fast as this host's" keeps_pace vm0
holds "less than 64 MiB of a machine's memory are taken, beside what QEMU's serial ports have" \
    test $(($(taken vm0) - $(buffers vm0))) -lt 65536
equal "they have nothing of this host's system" "" "$(vshmem exec vm0 -- sh -c 'ls /usr/share 2>/dev/null')"
equal "but a shell" "vm0" "$(vshmem exec vm0 -- sh -c 'hostname')"
equal "and what is shared" "$(wc -c <"$work/fwq")" "$(vshmem exec vm0 -- sh -c "wc -c <$work/fwq")"
echo '#include <sys/shm.h>
int main(void) { return shmget(0x7777, 4096, IPC_CREAT | 0600) < 0; }' | "${CC:-cc}" -x c -o "$work/make" -
contains "what commands make in one of them" 0x00007777 "$(vshmem run --no-prefix --vm vm0 -- \
    "$work/make" && vshmem exec vm1 -- "$VSHMEM_BIN" ipcs)"
vshmem down
nothing_left "nothing is left of slim machines"

# By a clock that goes on a nanosecond with each instruction: whatever else the host does, it shows the same.
if ! has_kvm; then
    mkdir -p "$work/counted"
    cat >"$work/counted/qemu-system-x86_64" <<QEMU
#!/bin/bash
for word; do
    [ "\$word" != tcg,thread=multi ] || word=tcg,thread=single
    # Its counter goes by instructions, too.
    words+=("\${word/tsc_early_khz=/not.}")
done
exec "$(command -v qemu-system-x86_64)" "\${words[@]}" -icount shift=0
QEMU
    chmod -R a+rx "$work/counted"
    printf '[[machines]]\nname = "vm0"\nimage = "slim"\nmemory = "176M"\n' >"$work/slim.toml"
    LIMIT=300 PATH=$work/counted:$PATH code "a slim machine comes up whose instructions are counted" 0 \
        vshmem up "$work/slim.toml" --cold --timeout 250
    echo "        its first program ran after $(first vm0) s, and it took commands after $(began vm0) s"
    # Linux 6.12 does more than 6.1 before.
    case $(vshmem exec vm0 -- cat /proc/sys/kernel/osrelease) in 6.1.*) most=1 ;; *) most=1.2 ;; esac
    holds "its first program runs within $most s" \
        awk -v at="$(first vm0)" -v most=$most 'BEGIN { exit !(at > 0 && at < most) }'
    vshmem down
    nothing_left "nothing is left of it"
fi

# For so many boots, eight machines at a time on a host that has fewer processors.
boots=0 wrong=
while [ "$boots" -lt "${CLOCK_BOOTS:-0}" ]; do
    sed -e "s/^memory = .*/memory = \"176M\"\ncount = 8/" -e 's/^name = "vm0"$//' "$work/slim.toml" \
        >"$work/eight.toml"
    LIMIT=900 vshmem up "$work/eight.toml" --cold --timeout 850 >"$work/up" 2>&1 || break
    for n in 0 1 2 3 4 5 6 7; do
        pace=$(keeps_pace "vm$n") || wrong="$wrong vm$n in round $((boots / 8)): $pace"
        printf '        clock of vm%s: %s\n' "$n" "$pace"
    done
    boots=$((boots + 8))
    vshmem down
done
[ -z "${CLOCK_BOOTS:-}" ] ||
    equal "the clocks of $boots machines go as fast as this host's" "" "$wrong"

export VSHMEM_CLUSTER=$cluster
