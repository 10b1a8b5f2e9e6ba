#!/bin/sh
# The suite "bench": the benchmarks compile, their arithmetic is right, and each of them comes to its
# end on the kernel and under the interposer. Whether limits are met is not checked here: a machine
# that runs tests is too noisy for that (make bench says it).
set -eu

cd "$(dirname "$0")"
python3 -m unittest -q test_bench
python3 run.py --quick --no-machines

# Nothing may be left behind, neither in the kernel nor as a pool.
left=$("${VSHMEM_BIN:-../target/release/vshmem}" pool ls | grep -c 'bench-' || true)
if [ "$left" -ne 0 ]; then
    echo "bench: a benchmark's pool was left behind" >&2
    exit 1
fi
