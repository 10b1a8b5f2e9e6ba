#!/bin/bash
# Tests that need virtual machines: boots them for real and runs real programs in them.
#
#   tests/machines/run.sh              all cases
#   tests/machines/run.sh NAME...      only these: the names of the files in cases/, or paths
#   tests/machines/run.sh --list       the names of all, in their order
#
# MACHINES_CASES names them as well. VSHMEM_BIN and VSHMEM_LIB name the command and the library; by default
# those of target/release, which are built first. VSHMEM_TEST_KERNEL names the machines' kernel image, instead
# of the newest that is installed or downloaded; for instance
# VSHMEM_TEST_KERNEL=$(kmod/build.sh --image 6.12.117+deb12-amd64), whose modules lie beside it.
#
# Ends with "N passed, N failed". Needs qemu-system-x86; under TCG all cases take ten minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
export MACHINES_ROOT=$root MACHINES_TARGET=$target
# shellcheck source=tests/lib/cases.sh
. "$root/tests/lib/cases.sh"

# First those which share two machines and leave them to the next.
all_cases=$(cases_of "$here/cases" exec run ipc dead launch balance doctor gone)
[ "${1:-}" != --list ] || { echo "$all_cases" && exit; }

if [ -z "${VSHMEM_BIN:-}" ] || [ -z "${VSHMEM_LIB:-}" ]; then
    "$root/scripts/build.sh"
fi
export VSHMEM_BIN=${VSHMEM_BIN:-$target/release/vshmem}
export VSHMEM_LIB=${VSHMEM_LIB:-$target/release/libvshmem.so}

# A place of our own for sockets and records, so that nothing of the user's clusters is touched and all that
# is left behind can be seen.
work=$(mktemp -d "${TMPDIR:-/tmp}/vm.XXXXXX")
# Machines see it, as a user who may see what everybody may.
chmod 755 "$work"
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR=$work/run MACHINES_WORK=$work
export VSHMEM_CLUSTER=t$$
unset VSHMEM_POOL VSHMEM_KEYS

end_below() { # end_below PID: ends all that a process has begun, and what that has
    local child
    for child in $(pgrep -P "$1"); do
        end_below "$child"
        kill -KILL "$child" 2>/dev/null || true
    done
}

finish() {
    "$VSHMEM_BIN" down --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- ${MACHINES_CASES:-$all_cases}

run_case() { # run_case NAME
    local name=$1 file=$here/cases/$1.sh begun=$SECONDS before
    case $name in
    */*) file=$name name=$(basename "$name" .sh) ;;
    esac
    before=$(wc -l <"$work/failed")
    echo "== $name"
    # shellcheck disable=SC2094 # only the case writes to the lists
    (
        # What an interrupted case has begun ends with it, and it may have a function to clean up.
        # shellcheck disable=SC2317 # the trap calls it
        clean_up() { :; }
        trap 'clean_up; end_below "$BASHPID"' EXIT
        trap 'exit 1' HUP INT TERM
        # shellcheck source=/dev/null
        . "$here/lib.sh"
        # shellcheck source=/dev/null
        . "$file"
        exit 0
    ) </dev/null || echo "$name ended early" | tee -a "$work/failed"
    echo "   $name took $((SECONDS - begun)) s"
    # What one that failed has left is no failure of others.
    [ "$(wc -l <"$work/failed")" -eq "$before" ] || "$VSHMEM_BIN" down --all >/dev/null 2>&1 || true
}

: >"$work/passed"
: >"$work/failed"
for name in "$@"; do run_case "$name"; done

(
    # shellcheck source=/dev/null
    . "$here/lib.sh"
    vshmem down --all
    nothing_left "nothing is left after vshmem down --all"
)

passed=$(wc -l <"$work/passed")
failed=$(wc -l <"$work/failed")
[ "$failed" -eq 0 ] || sed 's/^/failed: /' "$work/failed"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
