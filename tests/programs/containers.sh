#!/bin/bash
# Containers: two sets of namespaces (IPC, PID, mount, user) with nothing in common but
# a pool that is bind-mounted into both, at different places.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need unshare util-linux
need perl perl
apart=(unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc)
[ "$PROGRAMS_MODE" = kernel ] || apart+=(--ipc)
"${apart[@]}" true 2>err.log || skip "namespaces of a user's own are not allowed here: $(cat err.log)"

# container PLACE PART: runs a part of container.pl where the pool is PLACE/pool.
container() {
    local place=$dir/$1 part=$2
    if [ "$PROGRAMS_MODE" = kernel ]; then
        exec "${apart[@]}" perl "$here/perl/container.pl" "$part"
    fi
    mkdir -p "$place"
    : >"$place/pool"
    # shellcheck disable=SC2016 # for the inner shell
    exec "${apart[@]}" sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$pool" "$place/pool" \
        env "LD_PRELOAD=$PROGRAMS_LIB" "VSHMEM_POOL=$place/pool" "$PROGRAMS_FORBID" \
        perl "$here/perl/container.pl" "$part"
}

# A pool must exist before it can be mounted: the first use makes it.
equal "at first" "segments 0, sets 0, queues 0" "$(objects)"

(container left ask) >left.log 2>&1 &
left=$!
(container right answer) >right.log 2>&1 || fail "the second container: $(cat right.log)"
wait $left || fail "the first container: $(cat left.log)"

# A container that is killed as a whole while it holds a semaphore gives it back. More than once: the next
# one's first process has the same pid, and namespaces may have the same numbers.
held() { grep -q holds held.log; }
for _ in 1 2 3 4 5; do
    : >held.log
    (container left hold) >held.log 2>&1 &
    left=$!
    eventually "the holder" held
    kill -KILL $left
    wait $left 2>/dev/null || true
    (container right clean) >right.log 2>&1 ||
        fail "the semaphore of a killed container is not free: $(cat right.log)"
done
nothing_left || fail "objects are left: $(objects)"
echo "500 questions and answers between two containers, one killed with a semaphore"
