#!/bin/bash
# JACK's server, which locks all of its memory (mlockall): what it shares is locked, the rest of a pool of
# 1 GiB is left alone.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need jackd jackd2
[ "$(id -u)" = 0 ] || [ "$(ulimit -l)" = unlimited ] || skip "this user may not lock memory"

VSHMEM_POOL_SIZE=1G "${on_vshmem[@]}" jackd -R -P 1 -n "vshmem-$$" -d dummy >got 2>&1 &
server=$!
kib() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$server/status"; }
has_locked() { [ "$(kib VmLck)" -gt 65536 ]; }
eventually "it locks its memory" has_locked
locked=$(kib VmLck)
if [ "$PROGRAMS_MODE" = vshmem ]; then
    attached=$(grep -c "$pool" "/proc/$server/maps")
    [ "$attached" -gt 1 ] || fail "it attaches segments of the pool"
    blocks=$(stat -c %b "$pool")
    [ "$blocks" -lt 65536 ] || fail "the pool has $((blocks / 2)) KiB of memory"
fi
[ "$locked" -lt 524288 ] || fail "$locked KiB are locked"
kill -KILL "$server"
wait "$server" 2>/dev/null || true
echo "$locked KiB are locked${attached:+, the pool has $((blocks / 2)) KiB of memory}"
