#!/bin/bash
# Runs real, unmodified programs on Vshmem.
#
#   run.sh [LIB [NAME...]]     each program under the interposer LIB, with every
#                              System V IPC system call forbidden by seccomp
#   run.sh --kernel [NAME...]  the same checks against the kernel's own System V
#                              IPC, to see that a check expects what Linux does (as root)
#
# LIB is $VSHMEM_LIB, else target/release/libvshmem.so, if it is not named.
# A program's test is NAME.sh beside this file. Each gets a directory and a pool
# of its own, a time limit, and is cleaned up after, whatever it left running.
# Prints one line a program, the output of those that fail, and at the end
# 'N passed, N failed, N skipped'. A program that is not installed is skipped;
# with CI=true a skip is a failure. Exit status: 0 if nothing failed.
# PROGRAMS_LIMIT is the time limit of one program in seconds (240).
set -u

here=$(cd "$(dirname "$0")" && pwd)
limit=${PROGRAMS_LIMIT:-240}

usage() {
    echo "usage: run.sh [LIB|--kernel [NAME...]]" >&2
    exit 2
}

[ $# -ge 1 ] || set -- "${VSHMEM_LIB:-$here/../../target/release/libvshmem.so}"
case $1 in
--kernel) mode=kernel lib= ;;
-*) usage ;;
*) mode=vshmem lib=$(readlink -f "$1") ;;
esac
shift

work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-programs.XXXXXX") || exit 1
chmod 755 "$work"
pools=
if [ -w /dev/shm ]; then
    pools=$(mktemp -d /dev/shm/vshmem-programs.XXXXXX) && chmod 755 "$pools"
fi
[ -n "$pools" ] || pools=$work

# Ends what the tests left behind: every process that carries this run's
# directory in its environment. Prints what it found.
end_leftovers() {
    local pid command found=0
    while read -r pid; do
        # It may have ended by itself since.
        command=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || continue
        [ -n "$command" ] || continue
        echo "left running: $command(pid $pid)"
        kill -KILL "$pid" 2>/dev/null
        found=1
    done < <(grep -lsaF "PROGRAMS_RUN=$work" /proc/[0-9]*/environ | cut -d/ -f3)
    return $found
}

finish() {
    end_leftovers >/dev/null
    rm -rf "$work"
    [ "$pools" = "$work" ] || rm -rf "$pools"
}
trap finish EXIT
trap 'exit 130' INT TERM

forbid=
if [ "$mode" = vshmem ]; then
    if [ ! -f "$lib" ]; then
        echo "run.sh: there is no library '$lib'; build it with 'make build'" >&2
        exit 2
    fi
    forbid=$work/forbid-sysv
    if ! ${CC:-cc} -O2 -o "$forbid" "$here/../conformance/forbid.c"; then
        echo "run.sh: cannot build tests/conformance/forbid.c" >&2
        exit 2
    fi
    # A check that can't fail proves nothing: without the library the same calls must end a program.
    if { "$forbid" perl -e 'msgget(0, 0600)'; } 2>/dev/null; then
        echo "run.sh: forbid-sysv let a System V call through to the kernel" >&2
        exit 2
    fi
fi

if [ $# -gt 0 ]; then
    names=$*
else
    names=$(cd "$here" && for f in *.sh; do echo "${f%.sh}"; done | grep -vx -e run -e lib)
fi

# The kernel's IPC objects are visible to all: give each test a name space of its own.
isolate=()
if [ "$mode" = kernel ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "run.sh: --kernel gives each test an IPC name space, which takes root" >&2
        exit 2
    fi
    isolate=(unshare --ipc)
fi

passed=0 failed=0 skipped=0
for name in $names; do
    if [ ! -f "$here/$name.sh" ]; then
        echo "run.sh: there is no test '$name'" >&2
        exit 2
    fi
    dir=$work/$name
    mkdir "$dir" "$pools/$name.pool"
    # Tests that drop root write here too.
    chmod 1777 "$dir" "$pools/$name.pool"
    start=$SECONDS
    env PROGRAMS_RUN="$work" PROGRAMS_MODE=$mode PROGRAMS_LIB="$lib" PROGRAMS_FORBID="$forbid" \
        PROGRAMS_DIR="$dir" PROGRAMS_POOL="$pools/$name.pool/pool" \
        "${isolate[@]}" timeout --kill-after=10 "$limit" \
        bash "$here/$name.sh" >"$dir.log" 2>&1 </dev/null
    rc=$?
    if ! end_leftovers >>"$dir.log" && [ $rc -eq 0 ]; then
        rc=1
    fi
    took=$((SECONDS - start))
    case $rc in
    0)
        passed=$((passed + 1))
        echo "ok    $name (${took} s): $(tail -n 1 "$dir.log")"
        ;;
    77)
        reason=$(tail -n 1 "$dir.log")
        if [ "${CI:-}" = true ]; then
            failed=$((failed + 1))
            echo "FAIL  $name: skipped, which CI does not allow: $reason"
        else
            skipped=$((skipped + 1))
            echo "skip  $name: $reason"
        fi
        ;;
    *)
        failed=$((failed + 1))
        if [ $rc -eq 124 ] || [ $rc -eq 137 ]; then
            echo "FAIL  $name: not done within $limit s"
        else
            echo "FAIL  $name (exit status $rc)"
        fi
        tail -n 60 "$dir.log" | sed 's/^/      | /'
        ;;
    esac
    rm -rf "$dir" "$pools/$name.pool"
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
