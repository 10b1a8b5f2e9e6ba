#!/bin/sh
# run.sh [LIBRARY]: honest members and a hostile one, round after round with a fresh pool each.
# HOSTILE_ROUNDS=10 says how many rounds, HOSTILE_SECONDS=3 how long each lasts, HOSTILE_SEED where the dice
# begin (printed; the scheduler throws some, too). `vshmem check` and `vshmem ipcs` look at the pool
# meanwhile, if the program lies beside the library (or VSHMEM names it). Of the lies on a full file system,
# every HOSTILE_STEP-th is told (29).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
library=$(realpath "${1:-${VSHMEM_LIB:-$here/../../target/release/libvshmem.so}}")
rounds=${HOSTILE_ROUNDS:-10}
seconds=${HOSTILE_SECONDS:-3}
seed=${HOSTILE_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
vshmem=${VSHMEM:-$(dirname "$library")/vshmem}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-hostile.XXXXXX")
pool=$(mktemp /dev/shm/vshmem-hostile.XXXXXX)
trap 'rm -rf "$scratch" "$pool"' EXIT
trap 'exit 1' HUP INT TERM

for program in enemy honest lies meanwhile deadlines full; do
    "${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -O1 -g -pthread -o "$scratch/$program" "$here/$program.c"
done
cp "$library" "$scratch/libvshmem.so"

pool_size=128M # with the counts of a pool as it is by default
on_pool() { # on_pool COMMAND...: under the library
    timeout -k 5 300 env VSHMEM_POOL="$pool" VSHMEM_POOL_SIZE="$pool_size" \
        LD_PRELOAD="$scratch/libvshmem.so" "$@"
}

# Seconds that the tools may take, on a busy machine: a check may cost half a minute in a pool of liars, a
# list the tenth of it.
CHECK_LIMIT=60
LIST_LIMIT=20
# look SECONDS ARGUMENT...: a tool may complain as much as it likes, but it must come to an end by itself, and
# in time
look() {
    limit=$1
    shift
    ended=0
    timeout -s KILL "$limit" "$vshmem" "$@" >"$scratch/said" 2>&1 || ended=$?
    looks=$((looks + 1))
    case "$ended" in
    0 | 1 | 4 | 125) ;;
    *)
        echo "FAILED   vshmem $1: status $ended"
        tail -n 3 "$scratch/said"
        failed=$((failed + 1))
        ;;
    esac
}
look_around() { # look_around PID: as long as that process is there
    [ -x "$vshmem" ] || return 0
    while kill -0 "$1" 2>/dev/null; do
        look "$CHECK_LIMIT" check "$pool"
        look "$LIST_LIMIT" ipcs --waiters --pool "$pool"
        sleep 0.1
    done
}

failed=0
looks=0
rm -f "$pool"
on_pool "$scratch/lies" || failed=$((failed + 1))
on_pool "$scratch/meanwhile" || failed=$((failed + 1))
on_pool "$scratch/deadlines" || failed=$((failed + 1))
rm -f "$pool"

# In a mount namespace of its own: the file system goes with it.
# shellcheck disable=SC2016 # the inner shell expands it
on_a_full_one='mount -t tmpfs -o size=24M tmpfs "$0/small" &&
    env VSHMEM_POOL="$0/small/pool" VSHMEM_POOL_SIZE=64M LD_PRELOAD="$0/libvshmem.so" \
        "$0/full" "$0/small/filler" "$@"'
own=--map-root-user
[ "$(id -u)" -ne 0 ] || own=
mkdir "$scratch/small"
set --
[ ! -x "$vshmem" ] || set -- "$(realpath "$vshmem")" "$scratch/agent"
# shellcheck disable=SC2086 # a word, or none
unshare $own --mount --ipc sh -c "$on_a_full_one" "$scratch" "${HOSTILE_STEP:-29}" "$@" ||
    failed=$((failed + 1))

pool_size=4M
echo "seed $seed"
steps=0
calls=0
good=0
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    rm -f "$pool"
    # The pool is made, with something in it, before the enemy looks.
    if ! on_pool "$scratch/honest" 1 "$((seed + round))" >"$scratch/first"; then
        echo "FAILED   before round $round, without an enemy, seed $((seed + round))"
        failed=$((failed + 1))
        continue
    fi
    "$scratch/enemy" "$pool" "$seconds" "$((seed + round))" >"$scratch/steps" &
    enemy=$!
    status=0
    on_pool "$scratch/honest" "$seconds" "$((seed + 1000 + round))" >"$scratch/count" &
    honest=$!
    look_around "$enemy"
    wait "$honest" || status=$?
    wait "$enemy" || status=enemy
    if [ "$status" != 0 ]; then
        echo "FAILED   round $round, seed $((seed + round)), status $status"
        failed=$((failed + 1))
        [ -z "${HOSTILE_KEEP:-}" ] || cp "$pool" "$HOSTILE_KEEP"
        continue
    fi
    read -r more <"$scratch/steps"
    steps=$((steps + more))
    read -r more fine <"$scratch/count"
    calls=$((calls + more))
    good=$((good + fine))
done
echo "$steps words were written by the enemy; $calls calls were made, $good of them with success;" \
    "$looks times the pool was looked at"
# Nobody was at work, so nothing was tested.
[ "$good" -gt "$((rounds * 100))" ] || failed=$((failed + 1))
echo "$((rounds + 3 - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
