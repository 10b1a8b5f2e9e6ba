#!/bin/sh
# Runs test suites, each under a time limit, and counts them.
#
#   scripts/test.sh               those that every change needs, and those whose code this branch has changed
#   scripts/test.sh --all         all suites; of machines and mpi, which run in Debian 13 (suite machines13),
#                                 a few cases here
#   scripts/test.sh NAME...       only these, whole
#   scripts/test.sh --ci          what CI runs: of --all, a third of the cases of machines and mpi, another
#                                 for each commit, and of the heavy suites those whose code has changed since
#                                 they passed here, as docs/tested says, or whose turn it is
#   scripts/test.sh --list        the names of all
#   scripts/test.sh --list-quick  of the first, and --list-ci of CI's
#
# Ends with "N passed, N failed", and how many were skipped if any was; fails if any suite failed. A suite
# that is missing has failed. One is skipped for which packages are missing, or that says that it can't be run
# here (exit status 77), or for which there is no time before TEST_UNTIL (seconds since 1970); parts of suites
# are, with a line that begins with "skip". With CI=true, missing packages are a failure. Output is shown as
# it comes, with CI=true only what failed; what each suite printed is also kept in target/test/NAME.log.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
logs=$root/target/test
mkdir -p "$logs"
# The same random cases in each run: a change is judged by itself, not by luck. `make soak` looks for others.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-1}" FUZZ_SEED="${FUZZ_SEED:-1}"
export HOSTILE_SEED="${HOSTILE_SEED:-1}" VSHMEM_DIFFERENTIAL_SEED="${VSHMEM_DIFFERENTIAL_SEED:-1}"
cargo="$root/scripts/cargo.sh --exec"

# name | time limit | what must exist | command
# Debug builds for cargo's tests (overflow and debug checks are on), release builds for the rest.
suites() {
    cat <<TABLE
lint|20m|scripts/lint.sh|env CARGO_TARGET_DIR=$target/lint scripts/lint.sh
unit|20m|Cargo.toml|$cargo test --workspace --features vshmem-transport/contract,vshmem-cluster/contract --locked
models|15m|Cargo.toml|$cargo test --locked --lib -p vshmem-pool -p vshmem-ipc -p vshmem-wait --features vshmem-ipc/model,vshmem-wait/model -- model
miri|10m|scripts/miri.sh|scripts/miri.sh
capi|10m|tests/capi/Makefile|make -C tests/capi check
conformance|10m|tests/conformance/run.sh|tests/conformance/run.sh $target/release/libvshmem.so
aarch64|10m|tests/aarch64/run.sh|tests/aarch64/run.sh
differential|15m|tests/differential/Cargo.toml|$cargo test --release --manifest-path tests/differential/Cargo.toml
crash|15m|tests/crash/run.sh|tests/crash/run.sh $target/release/libvshmem.so
fuzz|15m|scripts/fuzz.sh|env SECONDS_EACH=${FUZZ_SECONDS:-20} scripts/fuzz.sh
sanitize|10m|scripts/sanitize.sh|scripts/sanitize.sh $target/release/libvshmem.so
hostile|10m|tests/hostile/run.sh|env HOSTILE_ROUNDS=${HOSTILE_ROUNDS:-5} tests/hostile/run.sh $target/release/libvshmem.so
programs|15m|tests/programs/run.sh|tests/programs/run.sh
install|10m|scripts/check-install.sh|scripts/check-install.sh
bindings|10m|tests/bindings/run.sh|tests/bindings/run.sh
packages|25m|tests/packages/run.sh|tests/packages/run.sh
kmod|15m|tests/kmod/run.sh|tests/kmod/run.sh
debian13|25m|tests/debian13/run.sh|env MACHINES_CASES=grant tests/debian13/run.sh ${DEBIAN13_UNIT-unit} conformance hostile install machines
machines13|50m|tests/debian13/run.sh|env RESULTS=$root/target/machines13 tests/debian13/run.sh --built machines mpi
root|15m|tests/root/run.sh|env VSHMEM=$target/release/vshmem tests/root/run.sh
machines|30m|tests/machines/run.sh|tests/machines/run.sh
mpi|20m|tests/mpi/run.sh|tests/mpi/run.sh
kvm|15m|tests/kvm/run.sh|tests/kvm/run.sh --quick
xen|15m|tests/xen/run.sh|tests/xen/run.sh --quick
lab|15m|lab/check.sh|lab/check.sh
TABLE
}

names() {
    suites | cut -d'|' -f1
}

# What every change needs; what may run beside the others; and the cases of machines and mpi that every change
# needs.
QUICK="unit capi conformance hostile programs install bindings machines mpi lab"
BESIDE="lint aarch64 fuzz miri packages debian13 models"
QUICK_CASES="exec dead run ipc gone grant" QUICK_MPI_CASES="messages"
# Of all suites, in Debian 13: not those with four machines, many kills, or other people's programs for long.
ALL_MPI_CASES="messages onesided ends features pypi pgas pools binding room spawn users verify"

# suite | what has to have changed since the branch began, if a suite is to run beside those
heavy() {
    cat <<'TABLE'
models|crates/sysv/pool crates/sysv/ipc crates/sysv/wait
differential|crates/sysv/ipc crates/sysv/capi tests/differential
crash|crates/sysv/ipc crates/sysv/pool tests/crash
kmod|kmod tests/kmod
root|crates/machines/root tests/root
kvm|crates/machines/hypervisor crates/machines/guest :(glob)crates/**/ivshmem/** kmod tests/kvm
xen|crates/machines/hypervisor/src/shared :(glob)crates/**/xen/** kmod tests/xen
packages|debian packaging tests/packages
TABLE
}

# suite | what it tests alone, or turn: CI runs it if that has changed since | its turn to be run anyhow
rare() {
    cat <<'TABLE'
models|crates/sysv/pool crates/sysv/ipc crates/sysv/wait|
miri|crates/sysv/pool crates/sysv/ipc scripts/miri.sh|
aarch64|crates/sysv tests/aarch64|
differential|crates/sysv/ipc crates/sysv/capi tests/differential|
crash|crates/sysv/ipc crates/sysv/pool tests/crash|
sanitize|crates/sysv scripts/sanitize.sh|
kmod|kmod tests/kmod|
fuzz|fuzz scripts/fuzz.sh crates/sysv/pool crates/sysv/ipc|0
root|crates/machines/root tests/root|
kvm|:(glob)crates/**/ivshmem/** crates/machines/hypervisor/src/qemu kmod tests/kvm|1
xen|:(glob)crates/**/xen/** kmod tests/xen|2
packages|debian packaging tests/packages|0
TABLE
}

# Whose turn it is: each commit has another one than the last.
turn() {
    echo $(($(git rev-list --count HEAD 2>/dev/null || echo 0) % 3))
}

ci_suites() { # all but heavy suites of which a run would tell nothing new
    rare >"$logs/rare"
    for suite in $(names); do
        IFS='|' read -r _ paths its <<LINE
$(grep "^$suite|" "$logs/rare" || echo "$suite||$(turn)")
LINE
        set -f
        # shellcheck disable=SC2086 # a list of words
        if [ "$its" = "$(turn)" ] || ! python3 scripts/tested.py unchanged "$suite" $paths; then
            printf '%s ' "$suite"
        fi
        set +f
    done
}

third() { # third NAME...: those of this turn
    number=$(turn)
    for name; do
        [ $((number % 3)) -ne 0 ] || printf '%s ' "$name"
        number=$((number + 1))
    done
}

changed() { # changed PATH...: since this branch left main, by commits or without
    since=HEAD differs=0
    for main in origin/HEAD origin/main main; do
        since=$(git merge-base HEAD "$main" 2>/dev/null) && break
        since=HEAD
    done
    git diff --quiet "$since" -- "$@" 2>/dev/null || differs=$?
    [ "$differs" -eq 1 ]
}

quick() { # those that this change needs
    printf '%s' "$QUICK"
    set -f
    heavy | while IFS='|' read -r suite paths; do
        # shellcheck disable=SC2086 # a list of words
        if changed $paths; then printf ' %s' "$suite"; fi
    done
    set +f
}

left_out() { # left_out SUITE...: what was not run of the tests, and why
    printf '\n==== left out\n'
    [ "$lane" != quick ] ||
        echo "suites that all changes need once, or whose code this branch has not changed (make test-all):" \
            "$(names | grep -vxF "$(printf '%s\n' "$@")" | xargs)"
    [ "$lane" != ci ] ||
        echo "suites that passed here as docs/tested says, with the same code, and whose turn it is not:" \
            "$(names | grep -vxF "$(printf '%s\n' "$@")" | xargs)"
    where="make test-all"
    if [ "$lane" = all ] || [ "$lane" = ci ]; then
        where="they run in Debian 13, suite machines13"
        [ "$lane" = all ] || where="$where, a third of them in each turn"
        echo "cases of mpi but $ALL_MPI_CASES: minutes each (make test where mpi has changed, make soak)"
    fi
    [ -z "${MACHINES_CASES:-}" ] || echo "cases of machines but $MACHINES_CASES: $where"
    [ -z "${MPI_CASES:-}" ] || echo "cases of mpi but $MPI_CASES: $where"
    [ -z "${LAB_QUICK:-}" ] || echo "the lab's suites but sharing and rivals: make test-all"
    cat <<'LIST'
cases of kvm and xen but those of --quick, and devices: hours (make test-kvm, test-xen, test-devices)
sanitizers of threads and of unit tests: Rust's library is compiled for them (make sanitize)
random cases but those of fixed seeds, and storms of more than seconds: make soak
LIST
}

show() { # show LOG: keeps what comes, and prints it but in CI, which may keep only so much of a run's output
    show=--show
    [ "${CI:-}" != true ] || show=
    if command -v python3 >/dev/null; then
        python3 scripts/slowest.py keep "$1" $show
    else
        tee "$1"
    fi
}

failures() { # failures LOG AROUND LINES: the last lines that tell a failure, with so many around each
    grep -an -C "$2" -E 'FAILED|panicked at|^error|^make.*Error' "$1" | tail -n "$3" || true
}

excerpt() { # excerpt LOG STATUS: what to know of a suite afterwards
    if [ "$2" -eq 0 ]; then
        tail -n 1 "$1"
    else
        failures "$1" 3 40
        echo "-- the last lines of target/test/$(basename "$1")"
        tail -n 20 "$1"
    fi
}

run_suite() { # run_suite NAME LIMIT NEEDS COMMAND
    printf '\n==== %s (at most %s s): %s\n' "$1" "$2" "$4"
    if [ ! -e "$3" ]; then
        echo "$3 is not there, so the suite $1 can't run: the checkout is incomplete." | tee "$logs/$1.log"
        return 1
    fi
    if ! lacks=$(scripts/prepare.sh --check "$1" 2>&1); then
        echo "$lacks" | tee "$logs/$1.log"
        [ "${CI:-}" != true ] || return 1
        echo "The suite $1 is skipped without them."
        return 77
    fi
    # Rust's tests choose names by their process: nobody else can have a file of such a name there.
    scratch=
    case $4 in
    "$cargo test "*)
        scratch=$(mktemp -d "${TMPDIR:-/tmp}/vs.XXXXXX")
        chmod 755 "$scratch"
        ;;
    esac
    # The exit status travels beside the pipe: plain sh has no pipefail.
    {
        status=0
        # shellcheck disable=SC2086 # the command is a list of words, the option one or none
        timeout $foreground --kill-after=20s "$2" env ${scratch:+"TMPDIR=$scratch"} $4 </dev/null 2>&1 ||
            status=$?
        echo "$status" >"$logs/$1.status"
    } | show "$logs/$1.log"
    [ -z "$scratch" ] || rm -rf "$scratch"
    status=$(cat "$logs/$1.status")
    [ "${CI:-}" != true ] || excerpt "$logs/$1.log" "$status"
    case $status in
    0) return 0 ;;
    77) echo "The suite $1 was skipped: it says above why." && return 77 ;;
    124 | 137) echo "The suite $1 was ended after its limit of $2 s." ;;
    *) echo "The suite $1 failed with status $status; its output is in target/test/$1.log." ;;
    esac
    return 1
}

lane='' foreground=''
case ${1:-} in
--list) names && exit 0 ;;
--list-quick) quick && exit 0 ;;
--list-ci) ci_suites && exit 0 ;;
--all) # shellcheck disable=SC2046 # a list of words
    set -- $(names)
    lane=all ;;
--ci) # shellcheck disable=SC2046 # a list of words
    set -- $(ci_suites)
    ! python3 scripts/tested.py unchanged lab lab || export LAB_QUICK=1
    [ "$(turn)" -eq 0 ] || export DEBIAN13_UNIT=
    lane=ci ;;
--beside)
    shift
    lane=beside foreground=--foreground ;;
'') # shellcheck disable=SC2046 # a list of words
    set -- $(quick)
    lane=quick
    changed lab || export LAB_QUICK=1
    changed crates/machines/mpi crates/sysv/ucx tests/mpi || export MPI_CASES="${MPI_CASES-$QUICK_MPI_CASES}"
    export MACHINES_CASES="${MACHINES_CASES-$QUICK_CASES}" ;;
esac
for name in "$@"; do
    names | grep -qx -- "$name" || {
        echo "There is no suite $name. There are: $(names | tr '\n' ' ')" >&2
        exit 2
    }
done

export CARGO_TARGET_DIR="$target"
export VSHMEM_LIB="$target/release/libvshmem.so" VSHMEM_BIN="$target/release/vshmem"

# Runs a suite, and writes its verdict, seconds and the number of its parts that were skipped to NAME.verdict.
judge() { # judge NAME [FACTOR]: with so many times its limit
    entry=$(suites | grep "^$1|")
    IFS='|' read -r _ limit needs command <<LINE
$entry
LINE
    began=$(date +%s)
    limit=$((${limit%m} * 60 * ${2:-1}))
    status=0
    if [ -z "${TEST_UNTIL:-}" ] || [ "$began" -lt "$TEST_UNTIL" ]; then
        # What has begun may take ten minutes longer.
        [ -z "${TEST_UNTIL:-}" ] || [ $((began + limit)) -lt $((TEST_UNTIL + 600)) ] ||
            limit=$((TEST_UNTIL + 600 - began))
        run_suite "$1" "$limit" "$needs" "$command" || status=$?
    else
        printf '\n==== %s\nskip    the suite %s: this host took so long that its time is up\n' "$1" "$1" |
            tee "$logs/$1.log"
        status=77
    fi
    parts=$(grep -ac '^skip' "$logs/$1.log" || true)
    case $status in
    0) verdict=passed ;;
    77) verdict=skipped parts=0 ;;
    *) verdict=FAILED ;;
    esac
    echo "$verdict $(($(date +%s) - began)) $parts" >"$logs/$1.verdict"
}

# Of all suites, those that mostly compile, and measure no time, run beside the others, on what these leave of
# the processors.
if [ "$lane" = beside ]; then
    for name in "$@"; do
        judge "$name" 3 >"$logs/$name.said" 2>&1
    done
    exit 0
fi
among() { # among NAME LIST: is it in it?
    case " $2 " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}
for name in "$@"; do rm -f "$logs/$name.verdict" "$logs/$name.times"; done
beside='' besides=''
if [ "$(nproc)" -gt 1 ] && { [ "$lane" = all ] || [ "$lane" = ci ]; }; then
    for name in $BESIDE; do
        ! among "$name" "$*" || besides="$besides $name"
    done
    # Processors are shared out by session (sched(7), autogroups): nice counts only within one.
    # shellcheck disable=SC2016,SC2086 # another shell expands it; a list of words
    setsid sh -c '{ echo 10 >/proc/self/autogroup; } 2>/dev/null
        exec nice -n 19 scripts/test.sh --beside "$@"' sh $besides </dev/null &
    beside=$!
    trap 'kill -TERM -- "-$beside" 2>/dev/null' EXIT
    trap 'exit 130' HUP INT TERM
fi
for name in "$@"; do
    ! among "$name" "$besides" || continue
    case $lane/$name in
    all/machines13) export MPI_CASES="$ALL_MPI_CASES" ;;
    ci/machines13)
        # shellcheck disable=SC2046,SC2086 # lists of words
        MPI_CASES=$(third $ALL_MPI_CASES) MACHINES_CASES=$(third $(tests/machines/run.sh --list))
        export MPI_CASES MACHINES_CASES
        ;;
    esac
    judge "$name"
    # What ran there is sampled here.
    if among "$lane/$name" "all/machines13 ci/machines13" && ! grep -q '^skipped' "$logs/$name.verdict"; then
        export MACHINES_CASES="$QUICK_CASES" MPI_CASES="$QUICK_MPI_CASES"
    fi
done
if [ -n "$beside" ]; then
    wait "$beside" || true
    trap - EXIT
    for name in $besides; do cat "$logs/$name.said"; done
fi

passed=0
failed=0
failing=
skipped=0
skipped_parts=0
printf '\n==== all suites\n'
for name in "$@"; do
    read -r verdict took parts 2>/dev/null <"$logs/$name.verdict" || verdict=FAILED took=0 parts=0
    case $verdict in
    passed) passed=$((passed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) failing="$failing $name" ;;
    esac
    skipped_parts=$((skipped_parts + parts))
    printf '%-14s %-7s %4d s\n' "$name" "$verdict" "$took"
    grep -a '^unsteady: ' "$logs/$name.log" || true
done
scripts/tested.py record "$logs" "$@" || true
[ -z "$lane" ] || left_out "$@"
printf '\n==== the slowest checks\n'
for name; do
    shift
    set -- "$@" "$logs/$name.times"
    case $name in *13) set -- "$@" "$root/target/$name"/*.times ;; esac
done
python3 scripts/slowest.py print "$@" || true
# Last, since that is what stays of a long output.
for name in $failing; do
    printf '\n==== %s failed\n' "$name"
    failures "$logs/$name.log" 0 5
    tail -n 6 "$logs/$name.log" || true
done
echo
total="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || total="$total, $skipped skipped"
[ "$skipped_parts" -eq 0 ] || total="$total, $skipped_parts parts of suites skipped"
echo "$total"
[ "$failed" -eq 0 ]
