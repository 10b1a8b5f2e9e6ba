#!/bin/sh
# Prints the rows of docs/porting.md that count lines; lint compares. Comments and empty lines count, tests don't.
set -eu

cd "$(dirname "$0")/.."

lines() { # lines FILE...
    for file; do
        sed '/^#\[cfg(test)\]$/,$d' "$file"
    done | wc -l
}

sources() { # sources DIRECTORY: its files of Rust, but for those that are tests as a whole, and those of the port to Xen elsewhere
    find "$1" -name '*.rs' ! -name tests.rs ! -name 'test*' ! -path '*/tests/*' ! -path 'crates/agent/src/xen/*' | sort
}

# shellcheck disable=SC2046 # names without spaces
{
    port() { lines $(sources "crates/port/src/$1"); }
    up() { lines $(sources "crates/cluster/src/host/hypervisor/$1"); }
    echo "| **lines of the port** | **$(port local)** | **$(port ivshmem)** | **$(port xen)** |"
    echo "| lines of its driver | | $(lines kmod/vshmem.c kmod/vshmem_ioctl.h), optional | $(lines kmod/xen/*.c kmod/xen/*.h) |"
    echo "| lines of its back end | in the kernel | $(lines $(sources crates/agent/src)) (\`crates/agent\`) | $(lines crates/agent/src/xen/*.rs) (\`crates/agent/src/xen\`) |"
    echo "| lines of \`vshmem up\` | | $(up qemu) (\`host/hypervisor/qemu\`) | $(up xen) (\`host/hypervisor/xen\`) |"
}
