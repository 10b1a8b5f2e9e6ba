#!/bin/sh
# sanitize.sh [LIBRARY]: the library under those who see what a test can't: AddressSanitizer, of Rust (unit
# tests of the rooms that are in programs) and of C (programs, and an enemy, under an instrumented library),
# valgrind (the C API's programs, under LIBRARY), and ThreadSanitizer (unit tests, and threads that rely on
# what semop, msgsnd and msgrcv promise of order).
#
# SANITIZE="unit library valgrind thread"   which of them; "library valgrind", which is enough if it is not
#                                           set, takes two minutes. For thread, Rust's own library is compiled
#                                           anew, which takes some minutes the first time
#
# Needs x86-64, a Rust whose sanitizers came with it (rustup's do, Debian's don't), gcc with libasan and
# libtsan, and valgrind; thread needs Rust's source, too (rustup component add rust-src). What can't be had is
# said, and skipped; with CI=true that is a failure.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo="$root/scripts/cargo.sh --exec"
rustc=$(dirname "$(scripts/cargo.sh)")/rustc
target=${CARGO_TARGET_DIR:-$root/target}
library=$(realpath "${1:-${VSHMEM_LIB:-$target/release/libvshmem.so}}")
triple=x86_64-unknown-linux-gnu
wanted=${SANITIZE:-library valgrind}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-sanitize.XXXXXX")
pools=$(mktemp -d /dev/shm/vshmem-sanitize.XXXXXX)
# Some tests become other users.
chmod 755 "$scratch" "$pools"
trap 'rm -rf "$scratch" "$pools"' EXIT
trap 'exit 1' HUP INT TERM
passed=0
failed=0

note() { # note VERDICT WHAT: VERDICT is 0 if it is good
    if [ "$1" -eq 0 ]; then
        echo "ok      $2"
        passed=$((passed + 1))
    else
        echo "FAILED  $2"
        failed=$((failed + 1))
    fi
}

skip() { # skip WHAT WHY
    echo "skip    $1: $2"
    [ "${CI:-}" != true ] || failed=$((failed + 1))
}

try() { # try WHAT COMMAND...: what it says is shown if it fails
    what=$1 status=0
    shift
    "$@" >"$scratch/log" 2>&1 </dev/null || status=$?
    [ "$status" -eq 0 ] || tail -n 60 "$scratch/log"
    note "$status" "$what"
}

# What memory programs leave behind is theirs; who handles faults are they, too.
ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:handle_segv=0:handle_sigbus=0
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=0

# instrumented COMMAND...: cargo, with AddressSanitizer. Bootstrap: it is an unstable option of a stable
# compiler
instrumented() {
    RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_RELEASE_LTO=false \
        CARGO_TARGET_DIR="$target/asan" CARGO_BUILD_TARGET="$triple" $cargo "$@"
}

unit() {
    try "unit tests of pool, ipc, transport and wait" \
        instrumented test --locked --quiet --lib -p vshmem-pool -p vshmem-ipc -p vshmem-transport \
        -p vshmem-wait
}

# A program that gives a call less room than it says must be caught, or the rest proves nothing.
proof() {
    "$scratch/cc" -O1 -o "$scratch/overrun" tests/sanitize/overrun.c
    ! VSHMEM_POOL=$pools/proof VSHMEM_KEYS=all LD_PRELOAD=$1 "$scratch/overrun" >"$scratch/log" 2>&1 &&
        grep -q 'AddressSanitizer: stack-buffer-overflow' "$scratch/log"
}

library() {
    try "build of the library" instrumented build --release --locked --quiet -p vshmem-capi
    built=$target/asan/$triple/release/libvshmem.so
    [ -e "$built" ] || return 0
    printf '#!/bin/sh\nexec "%s" -fsanitize=address -fno-omit-frame-pointer "$@"\n' "${CC:-cc}" >"$scratch/cc"
    chmod +x "$scratch/cc"
    status=0
    proof "$built" || status=$?
    note "$status" "what a call writes is watched"
    # Not those that run programs which are not instrumented.
    try "conformance under the instrumented library" \
        env CC="$scratch/cc" TESTS="sem msg shm handlers users" tests/conformance/run.sh "$built"
    try "a hostile member under the instrumented library" \
        env CC="$scratch/cc" HOSTILE_ROUNDS="${HOSTILE_ROUNDS:-4}" tests/hostile/run.sh "$built"
}

# ThreadSanitizer wants all that it watches compiled for it, Rust's own library included. What it can't see:
# assembly, of which crates/sysv/pool/src/pair.rs tells it; fences, of which two order an atomic word before a
# system call or another; and other processes: memory is one process's to it, so threads stand for them, in
# the unit tests of ipc too.
watched() { # watched COMMAND...: cargo, with ThreadSanitizer
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread --cfg tsan" CARGO_PROFILE_RELEASE_LTO=false \
        TSAN_OPTIONS="die_after_fork=0:suppressions=$root/tests/sanitize/tsan.supp" \
        CARGO_TARGET_DIR="$target/tsan" \
        CARGO_BUILD_TARGET="$triple" $cargo -Zbuild-std "$@"
}

racing() { # racing LIBRARY [careless]: the threads; in a fixed address space, as older runtimes want it
    rm -f "$pools"/*
    timeout 120 setarch -R env "VSHMEM_POOL=$pools/threads" VSHMEM_POOL_SIZE=16M VSHMEM_KEYS=all \
        "LD_PRELOAD=$1" \
        "TSAN_OPTIONS=suppressions=$root/tests/sanitize/tsan.supp" "$scratch/threads" ${2:+"$2"}
}

seen() { # seen LIBRARY: threads that nobody keeps apart are reported, or the rest proves nothing
    ! racing "$1" careless >"$scratch/log" 2>&1 && grep -q 'ThreadSanitizer: data race' "$scratch/log"
}

thread() {
    "${CC:-cc}" -std=gnu17 -O1 -g -rdynamic -fsanitize=thread -pthread -o "$scratch/threads" \
        tests/sanitize/threads.c
    try "build of the library for ThreadSanitizer" watched build --release --locked --quiet -p vshmem-capi
    built=$target/tsan/$triple/release/libvshmem.so
    [ -e "$built" ] || return 0
    status=0
    seen "$built" || status=$?
    note "$status" "a race of threads is seen"
    try "threads that semaphores and queues keep apart do not race" racing "$built"
    try "unit tests of pool, transport and wait for ThreadSanitizer" \
        watched test --locked --quiet --lib -p vshmem-pool -p vshmem-transport -p vshmem-wait
    # Those in which processes, which are threads there, work at once.
    try "unit tests of ipc for ThreadSanitizer" \
        watched test --locked --quiet --lib -p vshmem-ipc -- tests::death tests::members tests::msg \
        tests::reclaim tests::sem
}

under_valgrind() { # under_valgrind PROGRAM ARGUMENT...
    program=$1
    shift
    case $program in
    calls-named | barrier | pools) preload= ;;
    *) preload=$library ;;
    esac
    rm -f "$pools"/*
    try "valgrind: $program" env ${preload:+"LD_PRELOAD=$preload"} VSHMEM_POOL="$pools/pool" \
        VSHMEM_POOL_SIZE=64M \
        LD_LIBRARY_PATH="$scratch/capi" timeout 200 valgrind --quiet --error-exitcode=99 \
        "$scratch/capi/$program" "$@"
}

# A program that has lost memory, for which memcheck looks everywhere as it ends.
left_alone() {
    printf '%s\n' '#include <stdlib.h>' '#include <sys/sem.h>' \
        'int main(void) { return malloc(9) == NULL || semget(IPC_PRIVATE, 1, 0600) < 0; }' |
        "${CC:-cc}" -x c -o "$scratch/lost" - || return 1
    rm -f "$pools"/*
    LD_PRELOAD=$library VSHMEM_POOL=$pools/pool VSHMEM_POOL_SIZE=1G \
        valgrind "$scratch/lost" >"$scratch/found" 2>&1
    # Blocks of 512 bytes.
    grep -q 'definitely lost: 9 bytes' "$scratch/found" && [ "$(stat -c %b "$pools/pool")" -lt 8192 ]
}

# Of a program without a fault, and of its child, nothing is said. Of one that calls while its libraries are
# taken down, no more than which addresses are excepted.
says_nothing() {
    printf '%s\n' '#include <sys/sem.h>' \
        '__attribute__((destructor)) static void last(void) { semget(IPC_PRIVATE, 1, 0600); }' \
        'int used(void) { return 0; }' |
        "${CC:-cc}" -shared -fPIC -x c -o "$scratch/liblast.so" - || return 1
    printf '%s\n' '#include <stdlib.h>' '#include <sys/shm.h>' '#include <sys/wait.h>' '#include <unistd.h>' \
        'int main(void) { int id = shmget(IPC_PRIVATE, 9999, 0600); char *at = shmat(id, NULL, 0);' \
        '*at = 1; if (fork() == 0) exit(shmdt(at)); wait(NULL); return shmctl(id, IPC_RMID, NULL); }' |
        "${CC:-cc}" -x c -o "$scratch/whole" - || return 1
    rm -f "$pools"/*
    LD_PRELOAD=$library VSHMEM_POOL=$pools/pool VSHMEM_POOL_SIZE=64M \
        valgrind --quiet "$scratch/whole" >"$scratch/found" 2>&1 && [ ! -s "$scratch/found" ] || return 1
    LD_PRELOAD=$library:$scratch/liblast.so VSHMEM_POOL=$pools/pool \
        valgrind --quiet "$scratch/whole" >"$scratch/found" 2>&1 &&
        ! grep -v -e WARNING -e ClientReq "$scratch/found"
}

valgrinds() {
    programs="calls calls-named abi undo ids barrier pools"
    mkdir "$scratch/capi"
    for program in $programs; do
        make -s -C tests/capi LIB="$library" OUT="$scratch/capi" "$scratch/capi/$program"
    done
    for program in $programs; do
        case $program in
        pools) under_valgrind pools "$pools" unstepped ;;
        *) under_valgrind "$program" ;;
        esac
    done
    try "valgrind: memory of a pool is left alone" left_alone
    try "valgrind: nothing is said of a program without a fault" says_nothing
}

sanitizers() { # sanitizers: why there are none, if so
    if [ "$(uname -m)" != x86_64 ]; then
        echo "this machine is no x86-64"
    elif ! ls "$("$rustc" --print target-libdir)"/*_rt.asan.a >/dev/null 2>&1; then
        echo "this Rust has no sanitizers: install Rust by rustup"
    elif ! echo 'int main(void) { return 0; }' |
        "${CC:-cc}" -fsanitize=address -x c -o "$scratch/empty" - 2>/dev/null; then
        echo "this C compiler has no AddressSanitizer: install gcc with libasan"
    fi
}

lacks=$(sanitizers)
for_threads=$lacks
if [ -z "$lacks" ] && [ ! -e "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; then
    for_threads="Rust's source is not there: rustup component add rust-src"
fi
for part in $wanted; do
    case $part in
    unit | library)
        if [ -z "$lacks" ]; then "$part"; else skip "$part" "$lacks"; fi
        ;;
    thread)
        if [ -z "$for_threads" ]; then thread; else skip thread "$for_threads"; fi
        ;;
    valgrind)
        if command -v valgrind >/dev/null; then valgrinds; else skip valgrind "it is not installed"; fi
        ;;
    *)
        echo "sanitize.sh: there is no part $part. There are: unit library valgrind thread" >&2
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
