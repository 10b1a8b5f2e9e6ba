# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# The transport's contract, in a machine on the pool that it was given. It writes over the pool's last pages,
# so the machines have a pool that nobody uses any more.
need_helpers
need_machines

vshmem exec -u root vm0 -- "$MACHINES_TARGET/release/transport-contract" default >"$work/contract" 2>&1
equal "the transport keeps its contract in a machine" 0 $?
contains "and it is the transport of devices" "transport ivshmem" "$(cat "$work/contract")"
grep -v '^ok' "$work/contract" | sed 's/^/        /'

# With the driver, if the machines have it, it was another file: without, it is resource2.
vshmem down
LIMIT=300 vshmem up -n 1 --no-net --driver none >"$work/up" 2>&1
contains "up says what is missing" "waiters look every 2 ms, and pools are mapped uncached" \
    "$(cat "$work/up")"
contains "and so does pool ls" "uncached, poll" "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"
equal "and ps" "DOORBELL no" "$(vshmem ps -l | awk '{ printf "%s%s", NR == 1 ? "" : " ", $8 }')"
vshmem exec -u root vm0 -- "$MACHINES_TARGET/release/transport-contract" default >"$work/contract" 2>&1
equal "the transport keeps its contract without the driver" 0 $?
contains "where nothing can be slept on" "skip  sleep: woken" "$(cat "$work/contract")"
vshmem down
