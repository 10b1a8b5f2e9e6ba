#!/bin/sh
# The suite "lab": the statistics, tables and reports are right, and each suite comes to its end in miniature,
# on one kernel. Whether limits are met is not checked here: a machine that runs tests is too noisy for that.
# With LAB_QUICK=1 only the suites sharing and rivals.
set -eu

cd "$(dirname "$0")"
lab=$PWD/vshmem-lab
command=${VSHMEM_BIN:-$(cd .. && pwd)/target/release/vshmem}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "== its tests"
"$lab" --python -m pytest -q -p no:cacheprovider --durations=5 tests

fail() {
    echo "lab: $*" >&2
    exit 1
}

echo "== sharing and rivals"
PATH=$PWD:$PATH "$command" lab run sharing rivals --miniature --environment native --environment containers \
    --output "$work/run" >"$work/said" 2>"$work/progress" || {
    cat "$work/said" "$work/progress"
    fail "the suites in miniature failed"
}
# Only root has name spaces as containers have them; a rival, or the module of vsock, may not be there.
missing=$(grep 'missing:' "$work/said" | grep -Ev 'Only root|is not installed|vsock_loopback' || true)
[ -z "$missing" ] || fail "not measured: $missing"
"$lab" report "$work/run" >/dev/null
for file in report.html report.md report.txt; do
    [ -s "$work/run/$file" ] || fail "there is no $file"
done

finish() {
    # Nothing may be left behind, neither a pool nor a process.
    if "$command" pool ls | grep -q 'lab-' || ls /dev/shm/vshmem-lab-* >/dev/null 2>&1; then
        fail "a pool was left behind"
    fi
    echo "lab: all of it runs"
    exit 0
}
[ -z "${LAB_QUICK:-}" ] || finish

# The MPI suite says what it lacks, whatever that is here.
echo "== mpi"
"$lab" run mpi --miniature --contender 'one kernel' --output "$work/mpi" >"$work/said" 2>&1 ||
    fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -v 'not installed' || true)
[ -z "$missing" ] || fail "not measured: $missing"
grep -Eq "one kernel +8 B +[0-9.]+ (ns|µs)|missing:" "$work/said" || fail "$(cat "$work/said")"

echo "== dwarfs"
# The dwarfs answer rightly in all models; an answer that is wrong would be missing.
"$lab" run dwarfs --miniature --environment native --case 'dot product, double' --case 'pi by' \
    --case 'reduction, 2' --output "$work/dwarfs" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -ve 'Only root' -e 'not installed' || true)
[ -z "$missing" ] || fail "not measured: $missing"

echo "== hypervisors"
# Hypervisors: in a container, for machines would be booted anew; with the features of all.
"$lab" run hypervisors --miniature --contender 'container, small' \
    --environment small --environment threads --case HPL --case 'pi by' --output "$work/hypervisors" \
    >"$work/said" 2>&1 || fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -v -e 'not installed' -e ' runs no ' || true)
[ -z "$missing" ] || fail "not measured: $missing"
grep -q 'virtual processors at most' "$work/said" || fail "no table of features: $(cat "$work/said")"

echo "== vsuite"
# Applications, natively: machines would be booted anew. An answer that is wrong would be missing.
"$lab" run vsuite --miniature --contender native --environment '2 processors' --case compress \
    --case dedup --case streamcluster --output "$work/vsuite" >"$work/said" 2>&1 ||
    fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -v 'not installed' || true)
[ -z "$missing" ] || fail "not measured: $missing"

echo "== programs"
# Real programs, each of which does something.
"$lab" run programs --miniature --contender Vshmem --output "$work/programs" >"$work/said" 2>&1 ||
    fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -v 'not installed' || true)
[ -z "$missing" ] || fail "not measured: $missing"

echo "== algebra"
# Linear algebra: each product is checked. The tuner comes from PyPI, and not all machines count TLB misses.
"$lab" run algebra --miniature --environment native --contender native --contender OpenBLAS \
    --contender tuned --contender 'two in one kernel' --size 100 --size 500 --size 1000 --size 65536 \
    --output "$work/algebra" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
missing=$(grep 'missing:' "$work/said" | grep -ve 'not installed' -e 'no counter of TLB misses' \
    -e "Memory can't be made scarce" || true)
[ -z "$missing" ] || fail "not measured: $missing"
grep -Eq "^  OpenBLAS +100 rows +[0-9.,]+ Mflop/s|OpenBLAS .*missing:" "$work/said" ||
    fail "$(cat "$work/said")"

echo "== an interrupted run"
# An interrupted run goes on.
"$lab" run rivals --case semaphores --repetitions 15 --seconds 0.05 --output "$work/cut" \
    >"$work/said" 2>&1 &
pid=$!
until grep -qs '^rivals' "$work/cut/samples.csv" || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.1
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$status" -eq 143 ] || fail "an interrupted run ended with $status: $(cat "$work/said")"
before=$(wc -l <"$work/cut/samples.csv")
"$lab" run --resume "$work/cut" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
[ "$(wc -l <"$work/cut/samples.csv")" -gt "$before" ] || fail "a resumed run measured nothing"
grep -q '15 repetitions' "$work/said" || fail "a resumed run is not whole: $(cat "$work/said")"
finish
