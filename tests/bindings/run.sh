#!/bin/sh
# The suite "bindings": the Python module and the Rust crate, with the library installed as a user would
# install it, and docs/ffi.md.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
export CARGO_TARGET_DIR="$target"
work=$target/bindings
tools=$work/tools
# From PyPI: what builds the module, what it works with, and what tests it.
TOOLS="hatchling==1.33.0 numpy==2.4.6 pytest==9.2.0 mypy==2.4.1"

fail() {
    echo "bindings: $*" >&2
    exit 1
}

# The library is found by the dynamic linker, and by pkg-config.
rm -rf "$work/stage"
mkdir -p "$work"
make --no-print-directory install DESTDIR="$work/stage" PREFIX=/opt/vshmem >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "make install failed"
}
installed=$work/stage/opt/vshmem
unset VSHMEM_LIB
export LD_LIBRARY_PATH="$installed/lib" VSHMEM_BIN="$installed/bin/vshmem"
pools=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-bindings.XXXXXX")
trap 'rm -rf "$pools"' EXIT
trap 'exit 1' HUP INT TERM
export VSHMEM_POOL="$pools/pool" VSHMEM_POOL_SIZE=64M

# ---- Python

python=$(
    for p in /usr/bin/python3 python3; do
        "$p" -c 'import ensurepip' 2>/dev/null && echo "$p" && break
    done
) || python=
has_tools() {
    [ -n "$python" ] || return 1
    ! grep -qsx "$TOOLS $python" "$tools/is" || return 0
    # The system's packages are seen too: sysv_ipc is one.
    "$python" -m venv --clear --system-site-packages "$tools" || return 1
    # shellcheck disable=SC2086 # a list of requirements
    "$tools/bin/pip" install --quiet --disable-pip-version-check --ignore-installed $TOOLS || return 1
    echo "$TOOLS $python" >"$tools/is"
}

test_python() {
    rm -rf "$work/wheel"
    "$tools/bin/pip" wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir \
        "$work/wheel" bindings/python
    wheel=$(ls "$work"/wheel/vshmem-*-py3-none-any.whl)
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    [ "${wheel##*/}" = "vshmem-$version-py3-none-any.whl" ] ||
        fail "the wheel is $wheel, and Vshmem's version $version"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheel"
    (cd bindings/python && "$tools/bin/mypy" --strict --cache-dir "$work/mypy" vshmem tests)
    "$tools/bin/mypy" --strict --cache-dir "$work/mypy" tests/bindings
    status=0
    PYTHONDONTWRITEBYTECODE=1 "$tools/bin/pytest" -q -rs -p no:cacheprovider bindings/python/tests \
        tests/bindings >"$work/log" 2>&1 || status=$?
    # test.sh counts lines that begin with "skip".
    sed 's/^SKIPPED/skip/' "$work/log"
    return "$status"
}

if has_tools >"$work/log" 2>&1; then
    test_python
else
    cat "$work/log"
    echo "skip the Python module: python3-venv is not there, or PyPI can't be reached"
fi

# ---- Rust

crate() { # crate COMMAND...: cargo in the crate
    (cd bindings/rust && CARGO_TARGET_DIR="$work/rust" "$root/scripts/cargo.sh" --exec "$@")
}

(
    export PKG_CONFIG_PATH="$installed/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work/stage"
    crate test --locked --quiet
    # What is published builds by itself.
    crate package --locked --allow-dirty --quiet
    crate build --locked --quiet --examples
)
sums=$("$VSHMEM_BIN" run --local -n 3 -- "$work/rust/debug/examples/sum" 3 | sort)
[ "$sums" = "p0: 6
p1: 6
p2: 6" ] || fail "the example sum says: $sums"
for count in 1 2; do
    said=$("$VSHMEM_BIN" run --local -- "$work/rust/debug/examples/counter")
    [ "$said" = "$count" ] || fail "the example counter says $said, not $count"
done
# Without pkg-config's file, by a directory that the user names.
VSHMEM_LIB_DIR="$installed/lib" crate build --locked --quiet --examples
readelf -d "$work/rust/debug/examples/sum" | grep -q 'NEEDED.*libvshmem\.so\.1' ||
    fail "the example does not ask for libvshmem.so.1"
echo "bindings: Python and Rust"
