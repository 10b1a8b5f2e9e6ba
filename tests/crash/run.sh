#!/bin/sh
# run.sh [LIBRARY]: kill storms, on the kernel (shortly: it proves the tests) and under the library, without and
# with signals and stops. SECONDS_EACH=20 is the length of each of the two storms under the library, all scenarios
# together.
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

passed=$(grep -c '^ok ' "$scratch/all" || true)
failed=$(grep -c '^FAIL ' "$scratch/all" || true)
echo "$passed passed, $failed failed"
# Six scenarios in each run: a storm that dies before its end must not pass.
expected=12
[ -z "$library" ] || expected=24
[ "$failed" -eq 0 ] && [ "$passed" -eq "$expected" ]
