#!/bin/bash
# What the program tests share. Sourced by each NAME.sh that run.sh starts.
set -eu

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$PROGRAMS_DIR
pool=$PROGRAMS_POOL
cd "$dir"
# shellcheck disable=SC2034 # for tests that keep what they fetched
home=$HOME
export HOME=$dir LC_ALL=C

# Words before a command that put it on Vshmem and forbid it the kernel's
# System V calls; none when the kernel itself is tested.
on_vshmem=()
if [ "$PROGRAMS_MODE" = vshmem ]; then
    on_vshmem=(env "LD_PRELOAD=$PROGRAMS_LIB" "VSHMEM_POOL=$pool" VSHMEM_KEYS=all "$PROGRAMS_FORBID")
fi

# Words before a command that make it run as an ordinary user.
as_user=()
if [ "$(id -u)" = 0 ]; then
    as_user=(setpriv --reuid nobody --regid nogroup --clear-groups)
fi

fail() {
    echo "failed: $*"
    exit 1
}

# Here the first check that fails ends the test, and nothing is said of others.
work=$dir patience=20
# shellcheck source=tests/lib/checks.sh
. "$here/../lib/checks.sh"
passed() { :; }
failed() {
    printf '%s\n' "$@"
    fail "$1"
}

skip() {
    echo "$*"
    exit 77
}

# need PROGRAM PACKAGE: skips the test where the program is missing.
need() {
    command -v "$1" >/dev/null || skip "$1 is not installed; 'apt-get install $2' brings it"
}

# has_shape DOCUMENT FILE: what was printed with --json is what its schema says
has_shape() {
    VSHMEM_BIN=${vshmem:-} /usr/bin/python3 "$here/../schema.py" "$1" <"$2" 2>shape.log ||
        fail "the shape of $1: $(cat shape.log)"
}

# need_command NAME: for a test of `vshmem NAME`, also of what it prints as JSON; the command is $vshmem then
need_command() {
    [ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's own System V IPC has no vshmem $1"
    need perl perl
    /usr/bin/python3 -c 'import jsonschema' 2>/dev/null ||
        skip "jsonschema is not installed; 'apt-get install python3-jsonschema' brings it"
    vshmem=${VSHMEM_BIN:-$(dirname "$PROGRAMS_LIB")/vshmem}
}

# Runs a command without the library where System V calls are forbidden: if it
# lives, the test would prove nothing about those calls.
needs_sysv() {
    [ "$PROGRAMS_MODE" = vshmem ] || return 0
    if { "$PROGRAMS_FORBID" "$@" >control.log 2>&1; } 2>/dev/null; then
        fail "'$*' makes no System V call, so the test shows nothing"
    fi
}

# Prints how many IPC objects there are: 'segments N, sets N, queues N'. As the
# owner of the pool, if the test made it as an ordinary user.
objects() {
    local owner=()
    if [ -e "$pool" ] && [ "$(stat -c %U "$pool")" = nobody ]; then owner=("${as_user[@]}"); fi
    "${owner[@]}" "${on_vshmem[@]}" /usr/bin/python3 "$here/objects.py"
}

nothing_left() {
    [ "$(objects)" = "segments 0, sets 0, queues 0" ]
}

kill_with_children() { # kill_with_children PID
    local children
    children=$(pgrep -P "$1" || true)
    # shellcheck disable=SC2086 # a list of pids
    kill -KILL "$1" $children 2>/dev/null || true
}
