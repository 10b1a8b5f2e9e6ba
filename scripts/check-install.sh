#!/bin/sh
# The suite "install": what `make install` puts into place serves a user, and `make uninstall` takes all of it
# away.
set -eu

cd "$(dirname "$0")/.."
# What is installed is used, not what scripts/test.sh names.
unset VSHMEM_LIB VSHMEM_BIN
work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-install.XXXXXX")
stage=$work/stage prefix=/opt/vshmem
root=$stage$prefix
finish() {
    [ ! -d "$work/run" ] || XDG_RUNTIME_DIR="$work/run" "$root/bin/vshmem" agent --stop >"$work/log" 2>&1 ||
        true
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "install: $*" >&2
    exit 1
}

make --no-print-directory install DESTDIR="$stage" PREFIX=$prefix >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "make install failed"
}
for file in bin/vshmem bin/vshmem-place bin/vshmem-balance \
    lib/libvshmem.so lib/libvshmem.so.1 lib/libvshmem-ucx.so.1 \
    include/vshmem.h lib/pkgconfig/vshmem.pc \
    lib/systemd/user/vshmem-agent.service lib/systemd/user/vshmem-balance.service \
    lib/systemd/system/vshmem-agent-guest.service \
    share/man/man1/vshmem.1 share/man/man7/libvshmem.7 share/bash-completion/completions/vshmem \
    lib/udev/rules.d/60-vshmem.rules lib/sysusers.d/vshmem.conf share/doc/vshmem/README.md \
    share/doc/vshmem/docs/sandbox.md; do
    [ -s "$root/$file" ] || fail "$prefix/$file was not installed, or is empty"
done
# Each command has a page, and `vshmem help` tells of no other.
"$root/bin/vshmem" help | sed -n '1,/^Options:/s/^  \([a-z]*\) .*/\1/p' >"$work/commands"
printf '%s\n' balance lab place pool-create pool-ls pool-rm template-ls template-make template-rm \
    xen-own xen-join xen-withdraw >>"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 20 ] || fail "vshmem help tells of few commands"
while read -r name; do
    MANPATH="$root/share/man" man -w "vshmem-$name" >/dev/null 2>"$work/log" ||
        fail "there is no vshmem-$name(1): $(cat "$work/log")"
done <"$work/commands"
[ "$(wc -l <"$work/commands")" -eq "$(find "$root/share/man/man1" -name 'vshmem-*.1' | wc -l)" ] ||
    fail "there are other pages than commands"
MANPATH="$root/share/man" man vshmem-up >"$work/page" 2>&1 || fail "man vshmem-up: $(cat "$work/page")"
for text in "vshmem up -n 4" "EXIT STATUS" "SEE ALSO" "libvshmem(7)"; do
    grep -q -e "$text" "$work/page" || fail "vshmem-up(1) lacks '$text'"
done
PATH="$root/bin:$PATH" vshmem place -n 1 >"$work/log" 2>&1 || fail "vshmem place: $(cat "$work/log")"
PATH="$root/bin:$PATH" XDG_RUNTIME_DIR="$work" vshmem balance --once >"$work/log" 2>&1 ||
    fail "vshmem balance: $(cat "$work/log")"
tests/install/codes.sh "$root/bin/vshmem" || fail "exit codes"
python3 tests/install/completion.py "$root" || fail "what shells complete"

# The lab, by the command: it finds its package, and the C programs and the header that they need compile.
if "$root/bin/vshmem-lab" --probe; then
    PATH="$root/bin:$PATH" XDG_CACHE_HOME="$work/cache" XDG_STATE_HOME="$work/state" vshmem lab run sharing \
        --case "P and V, uncontended" --miniature --output "$work/lab" >"$work/log" 2>&1 &&
        ! grep -q 'missing:' "$work/log" || {
        cat "$work/log"
        fail "vshmem lab fails from where it is installed"
    }
else
    echo "skip: the lab, which has no Python here: scripts/prepare.sh --install lab"
fi

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
flags=$(PKG_CONFIG_PATH="$root/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$stage" pkg-config \
    --cflags --libs vshmem)
# shellcheck disable=SC2086 # flags are words
cc -Wall -Wextra -Werror -o "$work/program" "$work/program.c" $flags
readelf -d "$work/program" | grep -q 'NEEDED.*libvshmem\.so\.1' ||
    fail "the program does not ask for libvshmem.so.1: no soname"
VSHMEM_POOL="$work/pool" LD_LIBRARY_PATH="$root/lib" "$work/program" ||
    fail "a program that links the library fails"

"$root/bin/vshmem" --version >/dev/null || fail "the installed command does not run"
# The installed command finds the installed library.
"$root/bin/vshmem" run --local -- true || fail "vshmem run --local fails from where it is installed"

# What the user unit says, done by hand: the back end serves a pool and tells metrics, begins anew, and ends.
unit=$root/lib/systemd/user/vshmem-agent.service
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR="$work/run"
does() { # does SETTING: carries out that line of the unit, with the options of a user
    command=$(sed -n "s|^$1=||p" "$unit")
    case $command in
    "$prefix/bin/vshmem agent"*) ;;
    *) fail "$1 in the user unit does not start the installed command: $command" ;;
    esac
    VSHMEM_AGENT_OPTIONS="--metrics socket $work/pool" sh -ec "$stage$command"
}
truncate -s 64M "$work/pool" # a length that a pool has, but no pool
if does ExecStart >"$work/log" 2>&1; then
    fail "the back end serves what is no pool"
fi
rm "$work/pool"
"$root/bin/vshmem" pool create "$work/pool" --size 64M
# What `explain` says of programs, variables and pools, and `run` before it starts one.
cat >"$work/queue.c" <<'C'
#include <sys/msg.h>

int main(void) {
    return msgget(0x76735f31, IPC_CREAT | 0600) < 0;
}
C
cc -o "$work/dynamic" "$work/queue.c"
cc -static -o "$work/static" "$work/queue.c"
printf '#!/usr/bin/env perl\n' >"$work/script"
chmod +x "$work/script"
# explains STATUS WORDS COMMAND [VARIABLE=VALUE]: the status, and what is said with spaces for line ends
explains() {
    status=0
    said=$(env VSHMEM_POOL="$work/pool" ${4:+"$4"} "$root/bin/vshmem" explain -- "$3" 2>&1) || status=$?
    [ "$status" -eq "$1" ] || fail "vshmem explain $3 with ${4:-nothing} ended with $status: $said"
    echo "$said" | tr -s '\n ' ' ' | grep -q -e "$2" ||
        fail "vshmem explain $3 with ${4:-nothing} does not say '$2': $said"
}
explains 0 "calls $work/dynamic: msgget library $root/lib/.*pool $work/pool: $work/pool, 64.* \
result Its System V calls go to the pool" "$work/dynamic"
explains 0 "program .*perl, which runs $work/script" "$work/script"
explains 0 "made when it is first used" "$work/dynamic" VSHMEM_POOL="$work/none"
[ ! -e "$work/none" ] || fail "vshmem explain made a pool"
explains 1 "don't go to the pool: it is linked statically" "$work/static"
explains 1 "VSHMEM_KEYS can't be understood" "$work/dynamic" VSHMEM_KEYS=alles
explains 1 "VSHMEM_LOG must be off" "$work/dynamic" VSHMEM_LOG=loud
explains 1 "VSHMEM_KEYS is none" "$work/dynamic" VSHMEM_KEYS=none
explains 0 "with these keys go to the pool, the others to the kernel" "$work/dynamic" VSHMEM_KEYS=0x1-0x10
explains 0 "without a key (IPC_PRIVATE) go to the pool" "$work/dynamic" VSHMEM_KEYS=private
explains 1 "directory for the pool does not exist" "$work/dynamic" VSHMEM_POOL=/no/such/pool
explains 0 "dlopen VSHMEM_DL is keep: " "$work/dynamic" VSHMEM_DL=keep
said=$(VSHMEM_POOL=/no/such/pool "$root/bin/vshmem" run --local -- true 2>&1)
echo "$said" | grep -q "warning: .*the pool /no/such/pool" ||
    fail "vshmem run does not warn of a pool that can't be used: $said"
said=$(VSHMEM_POOL=$work/pool VSHMEM_LOG=error:/no/such/log "$root/bin/vshmem" run --local -- true 2>&1)
echo "$said" | grep -q "VSHMEM_LOG names /no/such/log, which can't be written" ||
    fail "vshmem run does not warn of a log that can't be written: $said"
explains 1 "the pool $work/queue.c: .* too small" "$work/dynamic" VSHMEM_POOL="$work/queue.c"
explains 1 "is no program" "$work/queue.c"

# What is printed as JSON has the shape that its schema says.
has_shape() { # has_shape DOCUMENT COMMAND...
    document=$1
    shift
    VSHMEM_POOL="$work/pool" "$root/bin/vshmem" "$@" >"$work/said" || fail "vshmem $*"
    VSHMEM_BIN="$root/bin/vshmem" /usr/bin/python3 tests/schema.py "$document" <"$work/said" ||
        fail "vshmem $* does not print what vshmem schema $document says"
}
has_shape ipcs ipcs --json
has_shape check check --json
has_shape pool-ls pool ls --json
has_shape ps ps --json
has_shape explain explain --json "$work/dynamic"
VSHMEM_POOL="$work/pool" "$root/bin/vshmem" explain --json "$work/dynamic" | python3 -c 'import json, sys
said = json.load(sys.stdin)
assert said["taken"] and said["calls"][0]["names"] == ["msgget"], said' || fail "vshmem explain --json"
VSHMEM_POOL="$work/pool" "$root/bin/vshmem" run --local -- "$work/static" 2>"$work/log" ||
    fail "a static program is not run"
ipcrm -Q 0x76735f31
grep -q 'warning: .*linked statically' "$work/log" || fail "vshmem run does not warn of a static program"
if VSHMEM_KEYS=alles "$root/bin/vshmem" run --local -- touch "$work/began" 2>"$work/log" ||
    [ -e "$work/began" ]; then
    fail "vshmem run starts a program with a wrong VSHMEM_KEYS"
fi
if VSHMEM_POOL="$work/queue.c" "$root/bin/vshmem" run --local -- "$work/dynamic" 2>"$work/log"; then
    fail "a program makes a queue in what is no pool"
fi
grep -q 'error: msgget: pool .* too small' "$work/log" ||
    fail "a program does not say why its call fails: $(cat "$work/log")"

does ExecStart >"$work/log" 2>&1 || fail "ExecStart of the user unit: $(cat "$work/log")"
metrics() {
    python3 tests/install/metrics.py "$work/run/vshmem/.agent/metrics.sock" >"$work/metrics"
    grep -q '^vshmem_pools 1$' "$work/metrics"
}
metrics || fail "the back end tells no metrics"
has_shape agent agent --status --json
does ExecReload || fail "ExecReload of the user unit"
metrics || fail "the back end does not go on after ExecReload"
does ExecStop || fail "ExecStop of the user unit"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -e "$work/run/vshmem" ] || break
    sleep 0.2
done
[ ! -e "$work/run/vshmem" ] || fail "something is left of the back end: $(find "$work/run")"

# The machines' unit starts the installed command with an option that it has.
guest=$root/lib/systemd/system/vshmem-agent-guest.service
grep -qx "ExecStart=$prefix/bin/vshmem agent --guest" "$guest" ||
    fail "the machines' unit does not start the installed command"
"$root/bin/vshmem" agent --help | grep -q -- '--guest' || fail "the installed command knows no --guest"
if command -v systemd-analyze >/dev/null; then
    sed -e "s|$prefix/bin|$root/bin|" "$guest" >"$work/vshmem-agent-guest.service"
    MANPATH="$root/share/man" systemd-analyze verify "$work/vshmem-agent-guest.service" 2>"$work/log" ||
        fail "the machines' unit: $(cat "$work/log")"
    # By systemd's own measure, from 0 to 100, of what it could do to its machine.
    if systemd-analyze security --help | grep -q -- --offline; then
        systemd-analyze security --offline=true --threshold=35 "$work/vshmem-agent-guest.service" \
            >"$work/log" 2>&1 || fail "the machines' unit has more rights than it had: $(cat "$work/log")"
    fi
    sed -e "s|$prefix/bin|$root/bin|" "$unit" >"$work/vshmem-agent.service"
    MANPATH="$root/share/man" systemd-analyze verify --user "$work/vshmem-agent.service" 2>"$work/log" ||
        fail "the user unit: $(cat "$work/log")"
    sed -e "s|$prefix/bin|$root/bin|" "${unit%/*}/vshmem-balance.service" >"$work/vshmem-balance.service"
    MANPATH="$root/share/man" systemd-analyze verify --user "$work/vshmem-balance.service" 2>"$work/log" ||
        fail "the unit of vshmem balance: $(cat "$work/log")"
    # That of the idle daemon, as the documentation has it.
    sed -n '/^```ini/,/^```/p' docs/doctor.md | grep -v '^```' |
        sed -e "s|/usr/bin|$root/bin|" >"$work/vshmem-idle.service"
    systemd-analyze verify "$work/vshmem-idle.service" 2>"$work/log" ||
        fail "the unit of the idle daemon: $(cat "$work/log")"
fi

make --no-print-directory uninstall DESTDIR="$stage" PREFIX=$prefix >"$work/log" 2>&1
left=$(find "$stage" ! -type d)
[ -z "$left" ] || fail "make uninstall left: $left"
echo "install: installed, used and removed"
