#!/bin/sh
# run.sh [LIBRARY]: kill storms, on the kernel (shortly: it proves the tests) and under the library, without
# and with signals and stops; after each scenario `vshmem check` must find each byte of the pool accounted
# for. SECONDS_EACH=20 is the length of each of the two storms under the library, all scenarios together.
# Then room: a file system that is full (room/). Then steps: a process killed after every store that each
# operation makes to a pool (x86-64 only). VSHMEM_BIN is the command; by default it is taken to be beside the
# library.
#
# CRASH_PARTS="storm room steps"  which of them
# STORM_KILLS=N      instead of SECONDS_EACH: how many processes all storms under the library kill together
# CRASH_ROUNDS=2000  rounds of calls that run at once and die by chance
# CRASH_SEED=1       the first of them
# CRASH_LEVEL_2=N    of the deaths of those who mend, one in N is tried (1: all, for hours; not set: some)
set -eu

library=${1:-}
seconds=${SECONDS_EACH:-20}
parts=${CRASH_PARTS:-storm room steps}
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-crash.XXXXXX")
pools=$scratch
[ -d /dev/shm ] && pools=$(mktemp -d /dev/shm/vshmem-crash.XXXXXX)
trap 'rm -rf "$scratch" "$pools"' EXIT
trap 'exit 1' HUP INT TERM

if [ -n "$library" ] && [ ! -f "$library" ]; then
    echo "run.sh: there is no library at $library: build it with cargo build --release -p vshmem-capi" >&2
    exit 2
fi
if [ -n "$library" ]; then
    command=${VSHMEM_BIN:-$(dirname "$library")/vshmem}
    if [ ! -x "$command" ]; then
        echo "run.sh: there is no command at $command: build it with cargo build --release -p vshmem-cli" >&2
        exit 2
    fi
fi
"${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -O1 -o "$scratch/storm" "$here"/*.c
[ -z "$library" ] || cp "$library" "$scratch/libvshmem.so"

# shellcheck source=tests/lib/isolated.sh
. "$here/../lib/isolated.sh"

scenarios="undo mutex whole queue segments churn holders letters"
number=8

# Whose each byte of a pool is that nobody uses any more: nobody's, or something leaked.
leaks() { # leaks WHAT
    found=$("$command" check "$pools/pool" 2>&1) && status=0 || status=$?
    # 1: it was mended, as the last to use it was killed, too.
    if [ "$status" -le 1 ]; then
        echo "ok crash/$1_leaves_nothing"
    else
        echo "$found"
        echo "FAIL crash/$1_leaves_nothing: vshmem check ends with $status"
    fi
}

run() { # run VARIANT COMMAND...: each scenario by itself, so that one can't spoil the next
    variant=$1
    shift
    for scenario in $scenarios; do
        {
            isolated "$@" ${variant:+"$variant"} "$scenario" 2>&1 || :
            [ ! -e "$pools/pool" ] || leaks "$scenario${variant:+_with_signals}"
        } | tee -a "$scratch/all"
        rm -f "$pools/pool"
    done
}

# The pool has room for all segments that processes can leave attached when they are killed (34 MiB were
# seen), and to spare.
storms() {
    for variant in "" --signals; do
        echo "== on the kernel ${variant#--}"
        run "$variant" "$scratch/storm" --seconds 0.5
    done
    [ -n "$library" ] || return 0
    cp "$scratch/all" "$scratch/kernel"
    long="--seconds $((seconds / number + 1))"
    [ -z "${STORM_KILLS:-}" ] || long="--kills $(((STORM_KILLS + 2 * number - 1) / (2 * number)))"
    for variant in "" --signals; do
        echo "== under the library ${variant#--}"
        # shellcheck disable=SC2086 # two words
        run "$variant" env "VSHMEM_POOL=$pools/pool" VSHMEM_POOL_SIZE=256M VSHMEM_KEYS=all \
            "LD_PRELOAD=$scratch/libvshmem.so" "$scratch/storm" $long
    done
    sed "1,$(wc -l <"$scratch/kernel")d" "$scratch/all" | awk '$3 == "kills," { kills += $2; done += $4 }
        END { printf "%d processes were killed in the middle of %d operations\n", kills, done }' \
        >"$scratch/kills"
}

# Built without the library: the library's own code is in it.
steps() {
    root=$here/../..
    target=${CARGO_TARGET_DIR:-$root/target}
    "$root/scripts/cargo.sh" --exec build --release --locked --quiet \
        --manifest-path "$here/steps/Cargo.toml" --target-dir "$target" || return 1
    "$target/release/vshmem-steps" --pairs "${CRASH_ROUNDS:-2000}" --seed "${CRASH_SEED:-1}" \
        ${CRASH_LEVEL_2:+--level-2 "$CRASH_LEVEL_2"}
}

: >"$scratch/all"
expected=0
case $parts in
*storm*)
    storms
    # Each scenario in each run, and the look at what is left: a storm that dies before its end must not pass.
    expected=$((2 * number))
    [ -z "$library" ] || expected=$((6 * number))
    ;;
esac
if [ -n "$library" ] && [ "${parts#*room}" != "$parts" ]; then
    # Four tests, on two pools.
    expected=$((expected + 8))
    { "$here/room/run.sh" "$library" || :; } | tee -a "$scratch/all"
fi
if [ -n "$library" ] && [ "$(uname -m)" = x86_64 ] && [ "${parts#*steps}" != "$parts" ]; then
    echo "== after every store"
    expected=$((expected + 1))
    if steps; then verdict="ok  "; else verdict=FAIL; fi
    echo "$verdict steps" | tee -a "$scratch/all"
fi

passed=$(grep -c '^ok ' "$scratch/all" || true)
failed=$(grep -c '^FAIL ' "$scratch/all" || true)
[ ! -s "$scratch/kills" ] || cat "$scratch/kills"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -eq "$expected" ] && [ "$expected" -gt 0 ]
