#!/bin/sh
# run.sh [LIBRARY]: kill storms, on the kernel (shortly: it proves the tests) and under the library, without and
# with signals and stops. SECONDS_EACH=20 is the length of each of the two storms under the library, all scenarios
# together. Then steps: a process killed after every store that each operation makes to a pool (x86-64 only).
#
# CRASH_ROUNDS=2000  rounds of calls that run at once and die by chance
# CRASH_SEED=1       the first of them
# CRASH_LEVEL_2=N    of the deaths of those who mend, one in N is tried (1: all, for hours; not set: some)
set -eu

library=${1:-}
seconds=${SECONDS_EACH:-20}
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
"${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -O1 -o "$scratch/storm" "$here"/*.c
[ -z "$library" ] || cp "$library" "$scratch/libvshmem.so"

# A namespace of its own, so that nothing is left in the system's.
isolated() {
    if [ "$(id -u)" -eq 0 ]; then
        unshare --ipc "$@"
    else
        unshare --map-root-user --ipc "$@"
    fi
}
if ! isolated true; then
    echo "run.sh: no IPC namespace can be had: run it as root, or allow user namespaces" >&2
    exit 2
fi

scenarios="undo mutex whole queue segments churn"

run() { # run VARIANT COMMAND...: each scenario by itself, so that one can't spoil the next
    variant=$1
    shift
    for scenario in $scenarios; do
        isolated "$@" ${variant:+"$variant"} "$scenario" 2>&1 | tee -a "$scratch/all"
        rm -f "$pools/pool"
    done
}

# The pool has room for all segments that processes can leave attached when they are killed (34 MiB were seen), and to spare.
for variant in "" --signals; do
    echo "== on the kernel ${variant#--}"
    run "$variant" "$scratch/storm" --seconds 0.5
done
if [ -n "$library" ]; then
    for variant in "" --signals; do
        echo "== under the library ${variant#--}"
        run "$variant" env "VSHMEM_POOL=$pools/pool" VSHMEM_POOL_SIZE=256M VSHMEM_KEYS=all \
            "LD_PRELOAD=$scratch/libvshmem.so" "$scratch/storm" --seconds "$((seconds / 6 + 1))"
    done
fi

# Built without the library: the library's own code is in it.
steps() {
    root=$here/../..
    target=${CARGO_TARGET_DIR:-$root/target}
    "$root/scripts/cargo.sh" --exec build --release --locked --quiet \
        --manifest-path "$here/steps/Cargo.toml" --target-dir "$target" || return 1
    "$target/release/vshmem-steps" --pairs "${CRASH_ROUNDS:-2000}" --seed "${CRASH_SEED:-1}" \
        ${CRASH_LEVEL_2:+--level-2 "$CRASH_LEVEL_2"}
}
wanted=0
if [ -n "$library" ] && [ "$(uname -m)" = x86_64 ]; then
    echo "== after every store"
    wanted=1
    if steps; then verdict="ok  "; else verdict=FAIL; fi
    echo "$verdict steps" | tee -a "$scratch/all"
fi

passed=$(grep -c '^ok ' "$scratch/all" || true)
failed=$(grep -c '^FAIL ' "$scratch/all" || true)
echo "$passed passed, $failed failed"
# Six scenarios in each run: a storm that dies before its end must not pass.
expected=12
[ -z "$library" ] || expected=$((24 + wanted))
[ "$failed" -eq 0 ] && [ "$passed" -eq "$expected" ]
