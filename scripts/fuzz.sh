#!/bin/sh
# fuzz.sh [TARGET...]: replays what is kept of earlier runs, then fuzzes each target (backend, pool, root,
# texts) for a while.
#
# SECONDS_EACH=60   for each target; 0 only replays
# FUZZ_SEED=N       begins with this seed, not with one by chance
# FUZZ_STEPS=N      only the pool, until so many steps were done: calls of the honest process, and what the
#                   enemy writes. Without AddressSanitizer, over ten times as fast: no memory around the pool
#                   and behind buffers, a secret beside them and the clocks find what is wrong. Its log,
#                   target/fuzz/pool.log, has the number from time to time
#
# What it learns stays in target/fuzz/TARGET and is gone on with the next time. An input that does harm is
# written to target/fuzz/found: mend what it shows, and keep it, made smaller, as
# fuzz/regressions/TARGET/WHAT-IT-SHOWS. The fuzzer is libFuzzer with AddressSanitizer: it needs a C++
# compiler, and a Rust whose sanitizers came with it (rustup's do, Debian's don't). Where they can't be had it
# says so, and the replay is all that is done; with CI=true that is a failure.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo="$root/scripts/cargo.sh --exec"
# The compiler that stands beside cargo; distributions that number both have no sanitizers.
rustc=$(dirname "$(scripts/cargo.sh)")/rustc
target=${CARGO_TARGET_DIR:-$root/target}
seconds=${SECONDS_EACH:-60}
steps=${FUZZ_STEPS:-}
# The replay is short whatever it says.
unset FUZZ_STEPS
work=$target/fuzz
triple=x86_64-unknown-linux-gnu

all="backend pool root texts"
for name in "$@"; do
    case " $all " in
    *" $name "*) ;;
    *)
        echo "fuzz.sh: there is no target $name. There are: $all" >&2
        exit 2
        ;;
    esac
done
targets=${*:-$all}
[ -z "$steps" ] || targets=pool

# A fuzzer that ends, or is ended, cleans up nothing.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-fuzz.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 1' HUP INT TERM

echo "== what is kept"
$cargo test --locked --quiet --manifest-path fuzz/Cargo.toml --target-dir "$target" -- --nocapture
[ "$seconds" -gt 0 ] || exit 0

missing() { # missing: what the fuzzer lacks, if anything
    if [ "$(uname -m)" != x86_64 ]; then
        echo "this machine is no x86-64"
    elif ! command -v "${CXX:-c++}" >/dev/null; then
        echo "there is no C++ compiler (c++): install g++"
    elif [ -z "$steps" ] && ! ls "$("$rustc" --print target-libdir)"/*_rt.asan.a >/dev/null 2>&1; then
        echo "this Rust has no sanitizers: install Rust by rustup"
    fi
}

lacks=$(missing)
if [ -n "$lacks" ]; then
    echo "skip    the fuzzers: $lacks"
    [ "${CI:-}" != true ]
    exit
fi

# The flags of cargo-fuzz, which has nothing else that is needed here.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Ccodegen-units=1"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table"
if [ -n "$steps" ]; then
    build=$work/fast
    limit=
else
    build=$target
    limit=-max_total_time=$seconds
    flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address"
fi
echo "== build"
# Bootstrap: sanitizers are an unstable option of a stable compiler.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" $cargo build --release --locked --quiet --features fuzzer \
    --manifest-path fuzz/Cargo.toml --target-dir "$build" --target "$triple"

mkdir -p "$work/found" "$work/texts"
# Examples are texts to begin with, by the number of their reader (fuzz/src/texts.rs).
for file in examples/cluster/*.toml; do
    { printf O && cat "$file"; } >"$work/texts/$(basename "$file" .toml)"
done
passed=0 failed=0
for name in $targets; do
    echo "== $name (${steps:+$steps steps}${limit:+$seconds s})"
    mkdir -p "$work/$name" "fuzz/regressions/$name"
    log=$work/$name.log
    status=0
    # Leaks: processes that a pool is made with are threads that are stopped for good, with all that they
    # have.
    # shellcheck disable=SC2086 # no limit is no word
    env ${steps:+FUZZ_STEPS="$steps"} ASAN_OPTIONS=detect_leaks=0 "$build/$triple/release/$name" \
        "$work/$name" "fuzz/corpus/$name" "fuzz/regressions/$name" \
        $limit -timeout=120 -rss_limit_mb=4096 -max_len=4096 -len_control=20 -print_final_stats=1 \
        -detect_leaks=0 \
        ${FUZZ_SEED:+-seed="$FUZZ_SEED"} -artifact_prefix="$work/found/$name-" >"$log" 2>&1 </dev/null ||
        status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    did=$(sed -n 's/^stat::steps: *//p' "$log" | tail -n 1)
    seen=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok      $name: ${runs:-?} inputs${did:+ with $did steps}, $seen places in the code, no finding"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: after ${runs:-?} inputs${did:+ with $did steps}; the end of $log:"
        grep -aE -A 4 'panicked at|ERROR:|SUMMARY:|Test unit written' "$log" | tail -n 30
    fi
    rmdir "fuzz/regressions/$name" 2>/dev/null || true
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
