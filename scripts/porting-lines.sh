#!/bin/sh
# Prints the rows of docs/porting.md that count lines; lint compares. Comments and empty lines count, tests
# don't. Rounded to hundreds, and to tens below 300, so that not every change of code is one of the page.
set -eu

cd "$(dirname "$0")/.."

lines() { # lines FILE...
    for file; do
        sed '/^#\[cfg(test)\]$/,$d' "$file"
    done | awk 'END { unit = NR < 300 ? 10 : 100; print int(NR / unit + 0.5) * unit }'
}

sources() { # sources PATH...: the files of Rust there, but for those that are tests as a whole
    find "$@" -name '*.rs' ! -name tests.rs ! -name 'test*' ! -path '*/tests/*' | sort
}

# shellcheck disable=SC2046 # names without spaces
{
    mapping() { lines $(sources "crates/sysv/transport/src/$1"); }
    broker() { lines $(sources "crates/sysv/agent/src/$1"); }
    shared=$(lines kmod/vshmem_ioctl.h kmod/pool.h kmod/pool.c kmod/file.c kmod/sleep.c)
    launcher() { lines $(sources "crates/machines/hypervisor/src/$1" | grep -v -e /template/ -e /migration); }
    templates() { lines $(sources "crates/machines/hypervisor/src/$1" | grep -e /template/ -e /migration); }
    echo "| **lines of its mapping** | **$(mapping local)** | **$(mapping ivshmem)** |" \
        "**$(mapping xen)** | **$(mapping dax)** |"
    echo "| lines of its driver | | $shared + $(lines kmod/ivshmem.c), optional |" \
        "$shared + $(lines kmod/xen/*.c kmod/xen/*.h) | |"
    echo "| lines of its broker | in the kernel | $(broker ivshmem) | $(broker xen) |" \
        "$(broker dax.rs), in machines |"
    echo "| lines of its command | | $(lines crates/cli/src/agent.rs) | $(lines crates/cli/src/xen.rs) | |"
    echo "| lines of its launcher | | $(launcher qemu) (\`qemu\`) + $(templates qemu) for templates," \
        "optional | $(launcher xen) (\`xen\`) | |"
}
