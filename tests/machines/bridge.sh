# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # for the cases; lib.sh sets it
# A bridge for machines, as root: in a network name space of its own, as another host's would be. Sourced by
# the cases that have machines there.

bridge_holder=

# Fails where there can be none. Its address is 10.99.0.1/24.
bridge_begins() {
    [ "$(id -u)" -eq 0 ] && unshare --net ip link add vshbr0 type bridge 2>/dev/null || return
    unshare --net sleep 100000 &
    bridge_holder=$!
    until [ "$(readlink "/proc/$bridge_holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.05
    done
    outside ip link add vshbr0 type bridge
    outside ip addr add 10.99.0.1/24 dev vshbr0
    outside ip link set vshbr0 up
    outside ip link set lo up
}

bridge_ends() { [ -z "$bridge_holder" ] || kill "$bridge_holder"; }

# outside COMMAND...: where the bridge is
outside() {
    if [ -n "$bridge_holder" ]; then nsenter --net="/proc/$bridge_holder/ns/net" "$@"; else "$@"; fi
}

# there COMMAND...: vshmem, where the bridge is, within LIMIT (300) seconds
there() {
    outside timeout -k 10 $((${LIMIT:-300} * slow)) "$VSHMEM_BIN" "$@"
}

# How many machines have a tap device in the bridge.
taps() { outside ip -o link show master vshbr0 | wc -l; }
