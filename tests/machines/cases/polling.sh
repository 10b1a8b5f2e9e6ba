# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# vshmem doctor on a host that is a machine of KVM itself, whose idle processors may poll before they halt:
# what no emulated machine shows. Only where it can be set.

idle=/sys/devices/system/cpu/cpuidle
limit=/sys/module/haltpoll/parameters/guest_halt_poll_ns
usual=200000 # the kernel's

if [ "$(cat "$idle/current_driver" "$idle/current_governor" 2>/dev/null | xargs)" != "haltpoll haltpoll" ] ||
    [ ! -w "$limit" ] || [ "$(nproc)" -lt 2 ]; then
    echo "skip    idle processors that poll: this host is no machine of KVM with haltpoll and two processors"
    exit 0
fi
were=$(cat "$limit")
clean_up() { echo "$were" >"$limit"; }

# What costs here, of what has nothing to do with the host's load, and with machines that others run here.
costly() {
    vshmem doctor --json clock-source vector-instructions cx16 pcid huge-pages ksm timer-slack governor \
        idle-states idle-exits | field '*sorted(f["id"] for f in told["findings"] if f["verdict"] == "costs")'
}
# Microseconds to an idle processor and back; the least of three counts, since others run.
waking() {
    local turn
    for turn in 1 2 3; do
        vshmem doctor --json idle-exits | field "told['findings'][0]['measured'][0]['value'], $turn"
    done | sort -n | head -n 1 | cut -d ' ' -f 1
}
is_near() { awk "BEGIN { exit !($(waking) <= 1.1 * $whole) }"; }
is_far() { awk "BEGIN { exit !($(waking) > 1.3 * $whole) }"; }

echo "$usual" >"$limit"
others=$(costly)
whole=$(waking)
echo 0 >"$limit"
expected=$(printf '%s\n' "$others" idle-exits | xargs -n 1 | sort | xargs)
equal "doctor finds that processors halt at once, and nothing else" "$expected" "$(costly)"
shows=no
! is_far || shows=yes
echo "        it shows in what waking takes: $shows ($whole µs without it)"
code "that is cured" 0 vshmem doctor --fix --yes idle-exits
equal "they poll as the kernel has it" "$usual" "$(cat "$limit")"
equal "waking is measured before and after" 1 \
    "$(grep -c '^idle-exits: to an idle processor and back: [0-9.]* µs; now [0-9.]* µs$' "$work/out")"
[ "$shows" = no ] || WITHIN=90 eventually "waking takes what it took, by a tenth" is_near
code "and undone" 0 vshmem doctor --undo
equal "so that they halt at once" 0 "$(cat "$limit")"
[ "$shows" = no ] || WITHIN=90 eventually "which shows again" is_far
clean_up
