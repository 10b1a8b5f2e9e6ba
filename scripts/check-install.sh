#!/bin/sh
# The suite "install": what `make install` puts into place serves a user, and `make uninstall` takes all of it away.
set -eu

cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage prefix=/opt/vshmem
root=$stage$prefix

fail() {
    echo "install: $*" >&2
    exit 1
}

make --no-print-directory install DESTDIR="$stage" PREFIX=$prefix >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "make install failed"
}
for file in bin/vshmem lib/libvshmem.so lib/libvshmem.so.1 include/vshmem.h lib/pkgconfig/vshmem.pc \
    share/man/man1/vshmem.1 share/man/man7/libvshmem.7 share/bash-completion/completions/vshmem; do
    [ -s "$root/$file" ] || fail "$prefix/$file was not installed, or is empty"
done
bash -n "$root/share/bash-completion/completions/vshmem" || fail "the completion for bash is not valid"

# A program that asks pkg-config how to compile.
cat >"$work/program.c" <<'C'
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <vshmem.h>

int main(void) {
    int id = vshm_semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    if (id < 0)
        return perror("vshm_semget"), 1;
    return vshm_semctl(id, 0, IPC_RMID) == 0 ? 0 : 1;
}
C
flags=$(PKG_CONFIG_PATH="$root/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$stage" pkg-config --cflags --libs vshmem)
# shellcheck disable=SC2086 # flags are words
cc -Wall -Wextra -Werror -o "$work/program" "$work/program.c" $flags
readelf -d "$work/program" | grep -q 'NEEDED.*libvshmem\.so\.1' || fail "the program does not ask for libvshmem.so.1: no soname"
VSHMEM_POOL="$work/pool" LD_LIBRARY_PATH="$root/lib" "$work/program" || fail "a program that links the library fails"

"$root/bin/vshmem" --version >/dev/null || fail "the installed command does not run"
# The installed command finds the installed library.
"$root/bin/vshmem" run --local -- true || fail "vshmem run --local fails from where it is installed"

make --no-print-directory uninstall DESTDIR="$stage" PREFIX=$prefix >"$work/log" 2>&1
left=$(find "$stage" ! -type d)
[ -z "$left" ] || fail "make uninstall left: $left"
echo "install: installed, used and removed"
