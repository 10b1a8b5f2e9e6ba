#!/bin/bash
# Tests of the transport xen: boots Xen, a dom0 and three guests inside of QEMU, and runs real programs in
# them.
#
#   tests/xen/run.sh              all cases
#   tests/xen/run.sh --quick      four of them, for everyday use
#   tests/xen/run.sh NAME...      only these: the names of the files in cases/ and bench/
#   tests/xen/run.sh hypervisors  nothing of Vshmem: what the lab asks for by XEN_SERIAL, a socket, in guests
#                                 that have the files listed in XEN_FILES
#
# Xen, its tools and the kernel come from Debian's packages, which are downloaded and unpacked below the cache
# directory ($VSHMEM_CACHE, by default ~/.cache/vshmem), not installed. Where they can't be had, the tests are
# skipped (exit code 77 if run by themselves). Needs qemu-system-x86, busybox-static, libyajl2, perl and
# python3. Nothing of it needs root or KVM.
#
# VSHMEM_BIN, VSHMEM_LIB and VSHMEM_CONTRACT name the command, the library and the program transport-contract;
# by default those of target/release, which are built first. Ends with "N passed, N failed". Takes some
# minutes, and is ended after XEN_LIMIT seconds, by default 3600 (0: never).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# The whole stack must be done by then.
limit=${XEN_LIMIT:-3600}

skip() {
    echo "skipped: $*"
    exit 77
}

for program in qemu-system-x86_64 cpio dpkg-deb apt-get xz busybox python3 perl; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done

unpacked=$("$here/fetch.sh") || skip "Xen's packages or the kernel's can't be had (above)"
# What has Vshmem in it: the driver, and what VSHMEM_BIN and so on name.
build() {
    local code=0
    driver=$("$root/kmod/build.sh" --xen "$(cat "$unpacked/kernel")") || code=$?
    [ "$code" -ne 2 ] ||
        skip "the headers of the kernel, or the tools to build a driver, can't be had (above)"
    [ "$code" -eq 0 ] || exit "$code"
    if [ -z "${VSHMEM_BIN:-}" ] || [ -z "${VSHMEM_LIB:-}" ] || [ -z "${VSHMEM_CONTRACT:-}" ]; then
        "$root/scripts/build.sh" demo
        "$root/scripts/build.sh" helpers
    fi
    export VSHMEM_BIN=${VSHMEM_BIN:-$target/release/vshmem}
    export VSHMEM_LIB=${VSHMEM_LIB:-$target/release/libvshmem.so}
    export VSHMEM_CONTRACT=${VSHMEM_CONTRACT:-$target/release/transport-contract}
}

driver=
serial=()
if [ "$*" = hypervisors ]; then
    : "${XEN_FILES:?}" # a list
    serial=(-serial "unix:${XEN_SERIAL:?}")
else
    build
fi

version=${unpacked##*/}
echo "        domains run on Xen ${version%%[-+]*}"
work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-xen.XXXXXX")
qemu=
finish() {
    [ -z "$qemu" ] || kill "$qemu" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

[ "${1:-}" != --quick ] || set -- pool ipc waiting isolation
# Each relies on guests that those before it have left; `up` ends them all.
# shellcheck source=tests/lib/cases.sh
. "$root/tests/lib/cases.sh"
# shellcheck disable=SC2046 # a list of words
[ $# -gt 0 ] || set -- $(cases_of "$here/cases" \
    pool contract ipc waiting isolation death reap suite owner saved up left full kinds liars)

"$here/images.sh" "$unpacked" "$driver" "$work" "$@"

# A plain processor: with what `max` has, dom0 dies (SMAP), Xen can't decode an instruction of its guests
# (rdtscp), and programs in them die now and then (AVX, in QEMU 7.2).
boot() {
    : >"$work/console"
    timeout --kill-after=10 "$limit" qemu-system-x86_64 -accel tcg,thread=multi \
        -cpu qemu64,+svm,+npt,+cx16,+ssse3,+sse4.1,+sse4.2,+popcnt,-rdtscp -smp 2 -m 2560M \
        -nodefaults -display none -monitor none -serial stdio "${serial[@]}" -no-reboot \
        -kernel "$work/xen" -append "dom0_mem=1024M,max:1024M console=com1 com1=115200,8n1 \
loglvl=warning guest_loglvl=warning" \
        -initrd "$work/vmlinuz console=hvc0 quiet,$work/dom0.img" </dev/null >"$work/console" 2>&1 &
    qemu=$!
}

# Does the first case begin in time? Or has QEMU ended, which is seen below?
begins() {
    local i
    for ((i = 0; i < 180; i++)); do
        ! grep -q '^== ' "$work/console" && kill -0 "$qemu" 2>/dev/null || return 0
        sleep 1
    done
    return 1
}

# On a host whose processors are taken away, emulated ones stand still now and then when dom0's kernel starts,
# before anything of ours runs.
boot
for _ in 1 2; do
    begins && break
    echo "unsteady: dom0 has not started in 180 seconds; it is started anew"
    kill "$qemu"
    wait "$qemu" || true
    boot
done
# As it comes: the console's lines end with a carriage return, and Xen's own begin with (XEN).
# In the background, for a shell heeds no signal while it waits for a pipe.
tail -n +1 -f --pid="$qemu" "$work/console" | stdbuf -oL tr -d '\r' | grep -v --line-buffered '^(XEN)' &
wait $! || true
ended=0
wait "$qemu" || ended=$?
qemu=

console=$(tr -d '\r' <"$work/console")
# What a case said that was begun again does not count.
counts=$(awk '
    /^== / { printf "%s", held; held = "" }
    /^void: / { held = "" }
    { held = held $0 "\n" }
    END { printf "%s", held }' <<<"$console")
passed=$(grep -c '^ok  ' <<<"$counts" || true)
failed=$(grep -c '^FAILED  ' <<<"$counts" || true)
if ! grep -q '^all cases are done$' <<<"$console"; then
    echo "FAILED  the machine did not get to the end (QEMU ended with $ended; its limit is $limit seconds)"
    grep '^(XEN)' <<<"$console" | tail -n 20
    failed=$((failed + 1))
fi
if grep -E 'BUG:|WARNING:|Oops|Call Trace' <<<"$console"; then
    echo "FAILED  a kernel complained (above)"
    failed=$((failed + 1))
fi
# Else a mistake of the driver could pass for one of the emulator's.
if grep -E '^\(XEN\).*domain_crash' <<<"$console"; then
    echo "FAILED  Xen has ended a guest for what it did (above)"
    failed=$((failed + 1))
fi
faults=$(grep -c '^(XEN) .*Triple fault' <<<"$console" || true)
# So many are not the emulator's alone.
if [ "$faults" -gt $((10 + 2 * $#)) ]; then
    echo "FAILED  too many guests had a triple fault"
    failed=$((failed + 1))
fi
[ "$faults" -eq 0 ] || echo "$faults guests had a triple fault; tests/xen/dom0.sh says why"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
