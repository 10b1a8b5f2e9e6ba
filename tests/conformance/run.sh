#!/bin/sh
# run.sh [LIBRARY]: builds the conformance programs and runs each against the kernel, which proves the tests
# themselves, and then, if a library is named, under it, with the twelve calls forbidden in the kernel.
# TESTS="sem msg" selects programs, MATCH=text selects tests by name. POOL=PATH runs them on that pool, which
# must be empty and open to all users, instead of on new ones; SHMLBA=BYTES says what its memory is mapped in
# multiples of, if not pages.
# RUNNER="qemu-aarch64 -L DIRECTORY" runs what CC, a cross compiler, has compiled, under the library only: for
# how QEMU translates the kernel's calls we don't answer. LEFT_OUT="shm/NAME sem/NAME" names tests that can't
# be run so.
set -eu

library=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
tests=${TESTS:-sem clone msg shm process memory handlers users stopped death mapped listing stress}
match=${MATCH:-}
runner=${RUNNER:-}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-conformance.XXXXXX")
pools=$scratch
[ -d /dev/shm ] && pools=$(mktemp -d /dev/shm/vshmem-conformance.XXXXXX)
trap 'rm -rf "$scratch" "$pools"' EXIT
trap 'exit 1' HUP INT TERM
# Other users must be able to enter: some tests become them.
chmod 755 "$scratch" "$pools"

if [ -n "$library" ]; then
    if [ ! -f "$library" ]; then
        echo "run.sh: there is no library at $library: build it with cargo build --release -p vshmem-capi" >&2
        exit 2
    fi
    cp "$library" "$scratch/libvshmem.so"
fi

compile() { # compile COMPILER NAME
    "$1" -std=gnu17 -Wall -Wextra -Werror -O1 -o "$scratch/$2" "$here/$2.c" -pthread
}
# The filter is for this kernel's calls, so it stands around the runner.
if [ -n "$runner" ]; then compile cc forbid; else compile "${CC:-cc}" forbid; fi
for name in $tests; do
    compile "${CC:-cc}" "$name"
done
for name in ${LEFT_OUT:-}; do
    grep -q "\"$name\"" "$here"/*.c || {
        echo "run.sh: there is no test $name to be left out" >&2
        exit 2
    }
done

# shellcheck source=tests/lib/isolated.sh
. "$here/../lib/isolated.sh"

run() { # run HEADING COMMAND...: keeps the lines that count
    echo "== $1"
    shift
    isolated "$@" ${match:+"$match"} >"$scratch/output" 2>&1 || echo "(exit status $?)" >>"$scratch/output"
    cat "$scratch/output" >>"$scratch/all"
    grep -v '^ok ' "$scratch/output" || true
}

: >"$scratch/all"
# A program that the filter kills may leave a core file.
cd "$scratch"
# The filter must do what it is for, or the second half proves nothing.
# shellcheck disable=SC2086 # the runner is a list of words
if isolated "$scratch/forbid" $runner "$scratch/sem" reports_limits 2>/dev/null | grep -q '^ok'; then
    echo "FAIL forbid: a forbidden call reached the kernel" | tee -a "$scratch/all"
else
    echo "ok forbid" >>"$scratch/all"
fi
[ -n "$runner" ] || for name in $tests; do
    run "$name on the kernel" env -u SHMLBA "$scratch/$name"
done
if [ -n "$library" ]; then
    for name in $tests; do
        set -- "LD_PRELOAD=$scratch/libvshmem.so" "$scratch/$name"
        # shellcheck disable=SC2086
        if [ -n "$runner" ]; then set -- $runner -E "$@"; fi
        [ "$name" != mapped ] || set -- VSHMEM_POOL_SIZE=16M "$@"
        run "$name under the library" "$scratch/forbid" env "VSHMEM_POOL=${POOL:-$pools/$name}" \
            VSHMEM_KEYS=all "$@"
        rm -f "$pools/$name"
    done
fi

passed=$(grep -c '^ok ' "$scratch/all" || true)
skipped=$(grep -c '^skip ' "$scratch/all" || true)
# A program that died prints no FAIL of its own.
failed=$(grep -c '^FAIL \|^(exit status \(12[5-9]\|1[3-9][0-9]\))' "$scratch/all" || true)
[ "$skipped" -eq 0 ] || echo "($skipped skipped)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
