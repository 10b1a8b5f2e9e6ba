#!/bin/sh
# soak.sh [REPORT]: the tests that chance has a part in, for hours instead of minutes. What came of each is
# appended to REPORT (target/soak.txt), with the commit and the machine. SOAK_PARTS names some of: woken
# hostile storm machines clusters images kmod crash seeds rules fuzz many mpi newest packages.
#
# WOKEN_ROUNDS=250000   two machines put each other to sleep and wake each other: two of each in a round, for
#                       each kind of wait
# HOSTILE_ROUNDS=500    of three seconds each
# STORM_KILLS=100000    processes that are killed while they and others work
# MACHINE_KILLS=1000    virtual machines that are killed while others work, and started anew
# CYCLES=100            clusters that come and go; before that, commands on them are killed at each of their
#                       steps (crates/cli/tests/kills), with what passes for QEMU; and then those of real
#                       machines, before which vshmem up is killed (tests/machines/cases/cycles.sh)
# CLOCK_BOOTS=50        machines of which the clock is compared with the host's, eight at a time
# KMOD_SECONDS=600      calls of the driver at random, under Linux 6.1 and 6.12 with lockdep and KASAN
#                       (scripts/prepare.sh --install kmod-debug)
# CRASH_ROUNDS=200000   calls that are run at once and killed after a store
# SEEDS=200             seeds of the tests that draw cases: policies of place, balance and doctor, the pool's
#                       heap, and calls against the kernel's
# FUZZ_STEPS=100000000  calls, and lies of an enemy, that a fuzzer chooses
# VSHMEM_MANY=1000000   semaphore sets, and queues, in one pool
# MPI_KILLS=10          of each part of a job of each MPI (tests/mpi/cases/kills.sh)
# All of mpi4py's and OpenCoarrays' own tests are run between machines (MPI_FULL), and the HPC Challenge.
# vshmem balance's policy is compared with other rules, as docs/balance.md has it.
# Machines boot a disk image (tests/machines/cases/image.sh).
# The newest MPIs of PyPI and the QEMU of Debian 13's backports are tried (tests/newest), and it is said what
# has changed.
# And the packages are built in Debian 13, by its own Rust, and cloud-init makes a guest ready with them.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target"
report=${1:-$target/soak.txt}
logs=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-soak.XXXXXX")
trap 'rm -rf "$logs"' EXIT
trap 'exit 1' HUP INT TERM
export VSHMEM_LIB="${VSHMEM_LIB:-$target/release/libvshmem.so}" \
    VSHMEM_BIN="${VSHMEM_BIN:-$target/release/vshmem}"
export WOKEN_ROUNDS="${WOKEN_ROUNDS:-250000}" HOSTILE_ROUNDS="${HOSTILE_ROUNDS:-500}"
export STORM_KILLS="${STORM_KILLS:-100000}" MACHINE_KILLS="${MACHINE_KILLS:-1000}" \
    CRASH_ROUNDS="${CRASH_ROUNDS:-200000}" CYCLES="${CYCLES:-100}"
export FUZZ_STEPS="${FUZZ_STEPS:-100000000}" KMOD_SECONDS="${KMOD_SECONDS:-600}"
export VSHMEM_MANY="${VSHMEM_MANY:-1000000}" SEEDS="${SEEDS:-200}"

# unit_tests WORD...: what cargo says of them in the end, as other suites do
unit_tests() {
    scripts/cargo.sh --exec test --locked --quiet "$@" |
        sed '/^$/d; s/ passed; \([0-9]* failed\);.*/ passed, \1/'
}

seeded_tests() {
    scripts/cargo.sh --exec test --locked --quiet --release -p vshmem-balance -p vshmem-place \
        --test policy --test policies &&
        scripts/cargo.sh --exec test --locked --quiet --release -p vshmem-pool -p vshmem-doctor --lib -- \
            heap policy &&
        scripts/cargo.sh --exec test --locked --quiet --release --manifest-path tests/differential/Cargo.toml
}

# with_seeds SEEDS COMMAND...: runs tests so often, each time with a seed by chance, which is said
with_seeds() {
    seeds=$1 good=0
    shift
    for _ in $(seq "$seeds"); do
        PROPTEST_RNG_SEED=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
        VSHMEM_DIFFERENTIAL_SEED=$PROPTEST_RNG_SEED
        export PROPTEST_RNG_SEED VSHMEM_DIFFERENTIAL_SEED
        echo "seed $PROPTEST_RNG_SEED"
        if "$@"; then good=$((good + 1)); else echo "FAIL with the seed $PROPTEST_RNG_SEED"; fi
    done
    echo "$good passed, $((seeds - good)) failed"
}

failed=0
part() { # part NAME SETTING COMMAND...
    name=$1 setting=$2
    shift 2
    all="woken hostile storm machines clusters images kmod crash seeds rules fuzz many mpi newest packages"
    case " ${SOAK_PARTS:-$all} " in
    *" $name "*) ;;
    *) return 0 ;;
    esac
    echo "== $name ($setting)"
    begun=$(date +%s)
    verdict=passed
    # What it says is shown as it comes, and decides by its last line: a pipe would hide how it ended.
    { "$@" 2>&1 || echo "it ended with status $?"; } </dev/null | tee "$logs/$name"
    tail -n 1 "$logs/$name" | grep -q '[1-9][0-9]* passed, 0 failed' || verdict=FAILED
    [ "$verdict" = passed ] || failed=1
    {
        echo "$name: $verdict in $(($(date +%s) - begun)) s ($setting)"
        grep -E '^(FAIL|failed:|newest:)| steps,|kills|killed|deaths|rounds in |[0-9]+ s for ' "$logs/$name" |
            tail -n 30 | cut -c1-200 | sed 's/^/    /' || true
        tail -n 1 "$logs/$name" | sed 's/^/    /'
    } >>"$report"
}

{
    echo "# $(git rev-parse --short HEAD 2>/dev/null ||
        echo unknown), $(date -u +%F), Linux $(uname -r), $(nproc) processors"
} >>"$report"
part woken "$WOKEN_ROUNDS rounds" tests/machines/run.sh woken
part hostile "$HOSTILE_ROUNDS rounds" tests/hostile/run.sh "$VSHMEM_LIB"
part storm "$STORM_KILLS kills" env CRASH_PARTS=storm tests/crash/run.sh "$VSHMEM_LIB"
part machines "$MACHINE_KILLS kills" tests/machines/run.sh storm
part clusters "each step, $CYCLES cycles" env KILLS=all scripts/cargo.sh --exec test --locked --quiet \
    -p vshmem-cli --test kills
part clusters "$CYCLES cycles of real machines" env CYCLES="$CYCLES" tests/machines/run.sh cycles
part clusters "16 slim machines at once" env SLIM_MACHINES=16 CLOCK_BOOTS="${CLOCK_BOOTS:-50}" \
    MACHINES_FULL=1 tests/machines/run.sh slim
part images "an image with cloud-init" env MACHINES_FULL=1 tests/machines/run.sh image
part kmod "$KMOD_SECONDS s on kernels that watch" env DEBUG_KERNEL=1 tests/kmod/run.sh
part crash "$CRASH_ROUNDS rounds" env CRASH_PARTS=steps tests/crash/run.sh "$VSHMEM_LIB"
part seeds "$SEEDS seeds" with_seeds "$SEEDS" seeded_tests
part fuzz "$FUZZ_STEPS steps" scripts/fuzz.sh pool
part rules "balance beside other rules and a published table" \
    unit_tests --release -p vshmem-balance --test policy -- --ignored
part many "$VSHMEM_MANY objects" unit_tests --release --lib -p vshmem-ipc tests::many
part mpi "other people's tests of MPI, whole" env MPI_FULL=1 tests/mpi/run.sh
part newest "what registries have by now" tests/newest/run.sh
part packages "built in Debian 13, a guest by cloud-init" env PACKAGES_FULL=1 tests/packages/run.sh trixie
echo "The report is $report."
[ "$failed" -eq 0 ]
