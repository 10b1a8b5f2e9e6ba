#!/bin/sh
# Runs the tests of the library: run.sh LIBVSHMEM_SO FOLDER_OF_PROGRAMS. Each test has a pool of its own.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
lib=$(realpath "$1")
ucx=$(dirname "$lib")/libvshmem_ucx.so
programs=$(realpath "$2")
work=$(mktemp -d /dev/shm/vshmem-capi.XXXXXX)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
number=0

verdict() { # verdict NAME STATUS
    if [ "$2" -eq 0 ]; then
        echo "ok       $1"
    else
        echo "FAILED   $1 (status $2)"
        failed=$((failed + 1))
    fi
}

# Runs a command with a fresh pool; TEST is its name in the listing.
run() { # run NAME ENVIRONMENT... -- COMMAND...
    name=$1
    shift
    number=$((number + 1))
    status=0
    env VSHMEM_POOL="$work/pool$number" VSHMEM_POOL_SIZE=64M LD_LIBRARY_PATH="$programs" "$@" \
        >"$work/log" 2>&1 || status=$?
    sed 's/^/    /' "$work/log"
    verdict "$name" "$status"
    rm -f "$work/pool$number"
}

preloaded() { # preloaded NAME PROGRAM ARGUMENT...
    name=$1 program=$2
    shift 2
    run "$name" LD_PRELOAD="$lib" timeout -k 5 120 "$programs/$program" "$@"
}

linked() { # linked NAME PROGRAM ARGUMENT...
    name=$1 program=$2
    shift 2
    run "$name" timeout -k 5 120 "$programs/$program" "$@"
}

keys() { # keys VSHMEM_KEYS ARGUMENT...
    value=$1
    shift
    run "VSHMEM_KEYS='$value'" VSHMEM_KEYS="$value" LD_PRELOAD="$lib" timeout -k 5 30 \
        "$programs/keys" "$@"
}

# exports LIBRARY SONAME: it exports the symbols that the package promises, and no other.
exports() {
    nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort >"$work/exports"
    awk -v soname="$2" '/^[^ *]/ { ours = $1 == soname } ours && /^ / { sub(/@.*/, ""); print $1 }' \
        "$here/../../debian/libvshmem1.symbols" | LC_ALL=C sort | diff - "$work/exports"
}

# Exactly what is meant to be seen can be seen, and nothing but libc is needed.
symbols() {
    exports "$lib" libvshmem.so.1 || return 1
    readelf -d "$lib" >"$work/dynamic"
    grep -q 'SONAME.*\[libvshmem.so.1\]' "$work/dynamic" || return 1
    ! grep NEEDED "$work/dynamic" | grep -v -e '\[libc\.so' -e '\[ld-linux' || return 1
    # Every function of the header is there, and no other.
    sed -n 's/^[a-z].*[ *]\(vshm_[a-z0-9_]*\)(.*/\1/p' "$here/../../include/vshmem.h" |
        LC_ALL=C sort >"$work/declared"
    grep '^vshm_' "$work/exports" | diff "$work/declared" -
}

# "older" if Rust 1.85, the oldest that is supported, has compiled the library.
older=$(readelf -p .comment "$lib" | sed -n 's/.*rustc version 1\.85\..*/older/p')

# What it takes of others by name is listed, with why that does no harm: a program may replace each.
undefined() {
    cat "$here/undefined.txt" ${older:+"$here/undefined-older.txt"} | grep -v '^#' | tr ' ' '\n' |
        LC_ALL=C sort >"$work/allowed"
    nm -D --undefined-only "$lib" | sed 's/.* //; s/@.*//' | LC_ALL=C sort | comm -23 - "$work/allowed" \
        >"$work/unlisted"
    [ ! -s "$work/unlisted" ] || { echo "not in undefined.txt:" && cat "$work/unlisted" && return 1; }
}

# libvshmem-ucx: the functions with UCX's names, and nothing but libc is needed.
ucx_symbols() {
    exports "$ucx" libvshmem-ucx.so.1 || return 1
    readelf -d "$ucx" >"$work/dynamic"
    grep -q 'SONAME.*\[libvshmem-ucx.so.1\]' "$work/dynamic" || return 1
    ! grep NEEDED "$work/dynamic" | grep -v -e '\[libc\.so' -e '\[ld-linux'
}

# These functions' assembly must come without a prologue, whatever the compiler.
entries() {
    for function in syscall dlopen dlmopen dlsym; do
        objdump -d --no-show-raw-insn "$lib" | sed -n "/<$function>:/,/^$/p" >"$work/entry"
        grep -q -e syscall -e 'jmp.*<vshmem_dl' "$work/entry" || return 1
        ! grep -w -e push -e sub "$work/entry" || return 1
    done
}

check_silently() { # check_silently NAME FUNCTION
    status=0
    "$2" >"$work/log" 2>&1 || status=$?
    [ "$status" -eq 0 ] || sed 's/^/    /' "$work/log"
    verdict "$1" "$status"
}

refused() { # refused NAME ERRNO TEXT POOL [COMMAND...]
    name=$1 error=$2 text=$3 pool=$4
    shift 4
    run "$name" VSHMEM_POOL="$pool" LD_PRELOAD="$lib" "$@" timeout -k 5 30 "$programs/refused" "$error" \
        "$text"
}

# Programs of compilers' sanitizers, whose runtimes are libraries or parts of the program.
sanitized() {
    for how in "cc -fsanitize=address" "cc -fsanitize=thread" "clang -fsanitize=address" \
        "clang -fsanitize=thread" "clang -fsanitize=address -shared-libasan"; do
        # shellcheck disable=SC2086 # a list of words
        if $how -std=gnu11 -g -O1 -pthread -o "$work/sanitized" "$here/sanitized.c" 2>"$work/log"; then
            runtimes=$(${how%% *} -print-file-name=libclang_rt.asan-x86_64.so)
            run "$how" LD_PRELOAD="$lib" LD_LIBRARY_PATH="$(dirname "$runtimes")" \
                timeout -k 5 120 "$work/sanitized"
        else
            echo "skip     $how: $(tail -n 1 "$work/log")"
        fi
    done
    rm -f "$work/sanitized"
}

# Code in segments, where the pool's file system lets it run, and where not.
code() { # code OPTIONS ARGUMENT...
    options=$1
    shift
    mkdir -p "$work/mounted"
    cat >"$work/mounted.sh" <<'SCRIPT'
mount -t tmpfs -o "$1" tmpfs "$2"
shift 2
exec "$@"
SCRIPT
    unshare --map-root-user --mount sh -e "$work/mounted.sh" "$options" "$work/mounted" \
        env VSHMEM_POOL="$work/mounted/pool" VSHMEM_POOL_SIZE=4M LD_PRELOAD="$lib" "$programs/code" "$@"
}

code_runs() { code exec; }
code_is_refused() { code noexec noexec; }

# Where the kernel writes core files into the folder of who crashes.
core_dumps() {
    hard=$(awk '/^Max core file size/ { print $6 }' /proc/self/limits)
    if grep -q '[|/]' /proc/sys/kernel/core_pattern || [ "$hard" = 0 ]; then
        echo "skip     core dumps: kernel.core_pattern is no plain name, or ulimit -c is 0"
        return
    fi
    mkdir -p "$work/cores"
    run "core dumps" LD_PRELOAD="$lib" timeout -k 5 60 "$programs/core" "$work/cores"
}

# logged LEVEL: what a program's calls write at that level, without the name and number of the process
logged() {
    VSHMEM_POOL="$work/pool" VSHMEM_POOL_SIZE=4M VSHMEM_KEYS=1-9 LD_PRELOAD="$lib" VSHMEM_LOG="$1" \
        "$programs/log"
}

among_many() { # among_many COUNT: that cost no more than among ten
    "${VSHMEM_BIN:-$(dirname "$lib")/vshmem}" pool create "$work/pool-many" --size "$((5 * $1 + 65536))K" \
        --limit "semmni=$(($1 + 100))" >"$work/log" 2>&1 || cat "$work/log"
    run "calls among $1" VSHMEM_POOL="$work/pool-many" LD_PRELOAD="$lib" \
        timeout -k 5 300 "$programs/many" "$1"
    rm -f "$work/pool-many"
}

plainly() {
    sed 's/^vshmem: log\[[0-9]*\]: //'
}

# VSHMEM_LOG, level by level; to a file as to standard error.
log() {
    taken="libvshmem [0-9.]* is loaded; calls go by VSHMEM_KEYS to the kernel, or to the pool $work/pool"
    opened="the pool $work/pool is opened: $work/pool, 4 MiB, on this kernel"
    cat >"$work/expected" <<L
info: $taken
info: $opened
debug: msgget: the key 0x7 has the id [0-9]*, by the pool
debug: msgrcv: no message of that type (ENOMSG)
warn: msgctl: no such IPC object, or an argument out of range (EINVAL)
debug: semget: the key 0x0 has the id [0-9]*, by the kernel, for VSHMEM_KEYS does not name the key
L
    for level in off error warn info debug; do
        case $level in
        off | error) pattern='^$' ;;
        warn) pattern='^warn:' ;;
        info) pattern='^info:\|^warn:' ;;
        debug) pattern=: ;;
        esac
        logged $level 2>"$work/said" || return 1
        plainly <"$work/said" >"$work/plain"
        grep "$pattern" "$work/expected" >"$work/wanted" || true
        [ "$(wc -l <"$work/plain")" -eq "$(wc -l <"$work/wanted")" ] || { cat "$work/plain"; return 1; }
        while read -r line; do
            grep -qx -e "$line" "$work/plain" || { echo "at level $level, not said: $line"; cat "$work/plain";
                return 1; }
        done <"$work/wanted"
    done
    # A closed standard error is nobody's.
    logged debug 2>&- >"$work/said" && [ ! -s "$work/said" ] || return 1
    for _ in 1 2; do
        logged "info:$work/file" >"$work/said" 2>&1 && [ ! -s "$work/said" ] || return 1
    done
    [ "$(plainly <"$work/file" | grep -cx "info: $taken")" -eq 2 ] || return 1
    logged "info:$work/no/such" >"$work/said" 2>&1 && [ ! -s "$work/said" ] || return 1
    ! logged loud 2>"$work/said" || return 1
    grep -q 'error: msgget: VSHMEM_LOG must be .* (EINVAL)$' "$work/said" || return 1
    rm -f "$work/pool" "$work/file"
}

# What VSHMEM_LOG=error, which `vshmem run` sets, says of calls that users don't expect to fail: each once.
reasons() {
    pool=$work/pool-why
    "${VSHMEM_BIN:-$(dirname "$lib")/vshmem}" pool create "$pool" --size 4M --limit msgmni=3 \
        >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
    VSHMEM_POOL=$pool LD_PRELOAD="$lib" VSHMEM_LOG=error "$programs/why" 2>"$work/said" ||
        { cat "$work/said"; return 1; }
    cat >"$work/expected" <<L
error: shmget: the pool has no room for 64 MiB: of its [0-9]* MiB for segments [0-9]* MiB are free; .*
error: shmget: a segment with the key 0x6 is there, of the size 4096, .*: vshmem ipcrm -M 0x6 (EINVAL)
error: semget: a semaphore set with the key 0x7 is there, of the size 2, .*: vshmem ipcrm -S 0x7 (EINVAL)
error: msgget: the pool's limit msgmni is 3, and is reached: .*--limit msgmni=NUMBER) (ENOSPC)
L
    [ "$(id -u)" -ne 0 ] || cat >>"$work/expected" <<L
error: msgget: the permissions of the queue with the key 0x8 don't let user 20001 do this; .*keep-id (EACCES)
error: semop: the permissions of the IPC object don't allow this (EACCES)
L
    sed 's/^vshmem: why\[[0-9]*\]: //' <"$work/said" >"$work/plain"
    [ "$(wc -l <"$work/plain")" -eq "$(wc -l <"$work/expected")" ] || { cat "$work/plain"; return 1; }
    while read -r line; do
        grep -qx -e "$line" "$work/plain" || { echo "not said: $line"; cat "$work/plain"; return 1; }
    done <"$work/expected"
    rm -f "$pool"
}

# Pools that are none, or not any more, or somebody else's.
bad_pools() {
    enoent=2 enomem=12 eacces=13 einval=22 enospc=28
    good=$work/good
    VSHMEM_POOL=$good VSHMEM_POOL_SIZE=4M LD_PRELOAD=$lib "$programs/abi"
    refused "no folder" $enoent "does not exist" "$work/missing/pool"
    refused "a folder" $einval "not a regular file" "$work"
    : >"$work/bad"
    refused "an empty file" $einval "too small" "$work/bad"
    head -c 4194304 /dev/urandom >"$work/bad"
    refused "random bytes" $einval "not a pool" "$work/bad"
    head -c 2097152 "$good" >"$work/bad"
    refused "half a pool" $einval "shorter" "$work/bad"
    { head -c 4000 "$good" && head -c 4190304 /dev/zero; } >"$work/bad"
    { printf '\377' | dd of="$work/bad" bs=1 seek=8 conv=notrunc 2>/dev/null; }
    refused "another version" $einval "version" "$work/bad"
    refused "a device" $einval "not a regular file" /dev/null
    mkdir -m 777 "$work/open"
    # The files' lengths are limited, and the limit on the limit is as low; as a user who can't raise that.
    # shellcheck disable=SC2046 # a list of words
    refused "files too short" $enomem "ulimit -f" "$work/open/pool" sh -c 'ulimit -f 100; exec "$@"' sh \
        $([ "$(id -u)" != 0 ] || echo setpriv --reuid 65534 --regid 65534 --clear-groups)
    run "the limit on files raised" VSHMEM_POOL="$work/open/pool" LD_PRELOAD="$lib" \
        sh -c 'ulimit -S -f 100; exec timeout 30 "$@"' sh "$programs/abi"
    if [ "$(id -u)" = 0 ]; then
        refused "another user's pool" $eacces "may not be read" "$good" \
            setpriv --reuid 65534 --regid 65534 --clear-groups
        refused "another user's folder" $eacces "may not create" "$work/new" \
            setpriv --reuid 65534 --regid 65534 --clear-groups
        full_disk
    fi
    rm -f "$work/bad" "$good"
}

# A file system without room for the pool's tables.
full_disk() {
    mkdir -p "$work/small"
    if unshare -m true 2>/dev/null; then
        cat >"$work/full.sh" <<'SCRIPT'
mount -t tmpfs -o size=4k tmpfs "$1"
shift
exec "$@"
SCRIPT
        name="no room for a pool" number=$((number + 1)) status=0
        VSHMEM_POOL="$work/small/pool" VSHMEM_POOL_SIZE=64M unshare -m sh "$work/full.sh" \
            "$work/small" env LD_PRELOAD="$lib" timeout 30 "$programs/refused" $enospc "no room" \
            >"$work/log" 2>&1 || status=$?
        sed 's/^/    /' "$work/log"
        verdict "$name" "$status"
    fi
}

# The first pool of a user on a system that has just started: the directory of named pools is made, too.
first_pool() {
    unshare --map-root-user --mount sh -ec \
        'mount -t tmpfs tmpfs /dev/shm; VSHMEM_POOL=first VSHMEM_POOL_SIZE=64M LD_PRELOAD="$0" "$1"' \
        "$lib" "$programs/early"
}

check_silently "exported symbols" symbols
check_silently "symbols of others" undefined
[ "$(uname -m)" != x86_64 ] || check_silently "entries in assembly" entries
check_silently "VSHMEM_LOG" log
check_silently "reasons" reasons
check_silently "exported symbols of libvshmem-ucx" ucx_symbols
if unshare --map-root-user --mount true 2>/dev/null; then
    check_silently "a user's first pool" first_pool
else
    echo "skip     a user's first pool: no name spaces"
fi

preloaded "calls by libc's names" calls
preloaded "calls by number" calls-numbered
linked "calls by vshmem.h" calls-named
preloaded "layout of structures" abi
preloaded "maps of users and groups" ids
preloaded "syscall() otherwise" syscall
preloaded "storm of signals" storm
preloaded "before and after main" early
preloaded "children" forks
preloaded "good guest" guest
preloaded "changing credentials" setuid
preloaded "calls that enter no kernel" kernel
preloaded "SEM_UNDO" undo
preloaded "SEM_UNDO of children in one memory" clones
preloaded "no heap" noheap
run "mlockall" VSHMEM_POOL_SIZE=1G LD_PRELOAD="$lib" timeout -k 5 60 "$programs/locked"
preloaded "idle" idle
[ "$(uname -m)" != x86_64 ] || preloaded "instructions of a call" instructions ${older:+older}
[ "$(uname -m)" != x86_64 ] || among_many "${CAPI_MANY:-140000}"
run "a crowd" VSHMEM_POOL_SIZE=1M LD_PRELOAD="$lib" timeout -k 5 120 "$programs/crowd"
opened=$programs/opened
preloaded "opened and looked up at run time" dlfcn taken "$opened"
run "VSHMEM_DL=keep" VSHMEM_DL=keep LD_PRELOAD="$lib" timeout 30 "$programs/dlfcn" kept "$opened"
run "the same, no keys" VSHMEM_KEYS=none LD_PRELOAD="$lib" timeout 30 "$programs/dlfcn" kept "$opened"
run "another interposer before" LD_PRELOAD="$opened/next.so $lib" timeout 30 "$programs/dlfcn" before \
    "$opened"
run "another interposer after" LD_PRELOAD="$lib $opened/next.so" timeout 30 "$programs/dlfcn" after "$opened"
preloaded "opens files" opens "$opened"
run "opens files without a pool" VSHMEM_POOL="no such pool" LD_PRELOAD="$lib" timeout -k 5 30 \
    "$programs/opens" "$opened"
run "a clock that stands still" LD_PRELOAD="$lib $opened/clock.so" timeout -k 5 60 "$programs/clock"
sanitized
core_dumps
if unshare --map-root-user --mount true 2>/dev/null; then
    check_silently "code in segments" code_runs
    check_silently "code on noexec" code_is_refused
else
    echo "skip     code in segments: no name spaces"
fi
bad_pools
linked "pools" pools "$work"
rm -f "$work"/pool-*
linked "sizes that a process knows" told "$work"
rm -f "$work"/pool-*
linked "pools, kernels and processes told apart" identity "$work"
rm -f "$work"/pool-*
for rank in rank-linked rank-opened; do
    run "UCX's questions: $rank" LD_PRELOAD="$lib $ucx" timeout -k 5 60 "$programs/$rank" \
        "$programs/ucx/libtransport.so" "$work"
    rm -f "$work"/pool-*
done
run "how a rank waits" LD_PRELOAD="$lib $ucx" "$programs/waits" "$programs/ucx/libtransport.so"
run "how a rank waits, sharing processors" VSHMEM_UCX_YIELD=1 LD_PRELOAD="$lib $ucx" \
    "$programs/waits" "$programs/ucx/libtransport.so" shares
run "how a rank waits, in a crowd of machines" VSHMEM_UCX_YIELD=sleep LD_PRELOAD="$lib $ucx" \
    "$programs/waits" "$programs/ucx/libtransport.so" sleeps
linked "barriers and reductions" barrier
linked "the last at a barrier enters no kernel" alone
linked "loaded late" late "$lib"
linked "cost of loading" cost "$lib"

keys all 0 1 0x7fffffff -1 -
keys none - 0 77
keys private 0 - 77
keys '5,0x100-0x1ff' 5 0x100 0x1ff - 6 0xff 0x200 0
keys 'private,-9--7,4294967295' 0 -9 -7 -1 - -10 -6 1
for wrong in '' 'alles' '1,,2' '9-1' '0x' 'none,1'; do
    keys "$wrong" none
done
run "VSHMEM_POOL=''" VSHMEM_POOL= LD_PRELOAD="$lib" "$programs/keys" none
run "VSHMEM_POOL='a b'" VSHMEM_POOL='a b' LD_PRELOAD="$lib" "$programs/keys" none
run "VSHMEM_POOL_SIZE=1" VSHMEM_POOL_SIZE=1 LD_PRELOAD="$lib" "$programs/keys" none
run "VSHMEM_DL=''" VSHMEM_DL= LD_PRELOAD="$lib" "$programs/keys" none
# Linked but not preloaded, and nothing said: libc's names stay the kernel's.
status=0
env -u VSHMEM_POOL -u VSHMEM_KEYS LD_LIBRARY_PATH="$programs" timeout 30 "$programs/keys-linked" - 0 99 ||
    status=$?
verdict "linked, nothing said" "$status"

[ "$failed" -eq 0 ] || {
    echo "$failed tests failed"
    exit 1
}
