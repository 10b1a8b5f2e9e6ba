#!/bin/sh
# In a clean system, as root: installs the packages that lie in the directory of this file, with its programs,
# uses them as a user would, and purges them.
set -eu

cd "$(dirname "$0")"
kernel=$(basename /lib/modules/*)

fail() {
    echo "packages: $*" >&2
    exit 1
}

quietly() { # quietly COMMAND...: shows what it said if it failed
    "$@" >/tmp/said 2>&1 || {
        cat /tmp/said
        fail "$* failed"
    }
}

# Each file of the system with its mode and owner, and where settings are, what is in it. Not what apt, dpkg,
# man, ld.so and DKMS (the key by which it signs) keep for themselves.
files() {
    find /usr /etc /var /opt /srv /root -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt \
        -o -path /var/cache -o -path /var/log \
        -o -path /etc/ld.so.cache -o -path /etc/group- -o -path /etc/gshadow- -o -path '/var/lib/dkms/mok.*' \
        -o -path "/usr/lib/modules/$kernel/modules.*" \) -prune \
        -o -printf '%p %M %U:%G %l\n' | sort
    # The group stays, as Debian has it: files may belong to it.
    find /etc -xdev -type f ! -name ld.so.cache ! -name '*-' -exec sha256sum {} + |
        grep -v ' /etc/g\(roup\|shadow\)$' | sort -k2
    grep -v '^vshmem:' /etc/group /etc/gshadow
}

files >/tmp/before
quietly apt-get install -y --no-install-recommends ./*.deb
grep -q '^vshmem:' /etc/group || fail "there is no group vshmem"
ldconfig -p | grep -q 'libvshmem\.so\.1 ' || fail "ldconfig does not know the library"

# An ordinary user.
user() {
    setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/tmp "$@"
}
user env LD_PRELOAD=libvshmem.so.1 perl -e \
    'my $q = msgget(0x77, 01600) // die $!;
    msgsnd($q, pack("l! a*", 1, "by the package"), 0) or die $!;
    exit($q >> 30 != 1)' ||
    fail "a program under the library can't send"
heard=$(user vshmem run --local -- perl -e \
    'my $q = msgget(0x77, 0) // die $!;
    msgrcv($q, my $text, 100, 0, 0) // die $!;
    print +(unpack("l! a*", $text))[1]')
[ "$heard" = "by the package" ] || [ "$heard" = "p0: by the package" ] || fail "vshmem run received: $heard"
[ "$(wc -l </proc/sysvipc/msg)" -eq 1 ] || fail "the kernel has a queue"
quietly user vshmem ipcs
quietly user vshmem check default

# A developer.
# shellcheck disable=SC2046 # flags are words
quietly cc -Wall -Wextra -Werror -o /tmp/program program.c $(pkg-config --cflags --libs vshmem)
quietly user /tmp/program

quietly user python3 "$PWD/program.py"
# Root's import writes nothing that stays.
quietly python3 -c 'import vshmem'

# A reader.
for page in '1 vshmem' '7 libvshmem' '3 vshmem' '4 vshmem'; do
    # shellcheck disable=SC2086 # a section and a name
    man $page 2>/dev/null | grep -q VSHMEM || fail "man $page shows nothing"
done
for file in README.md.gz docs/sandbox.md.gz changelog.gz copyright; do
    [ -s "/usr/share/doc/vshmem/$file" ] || fail "/usr/share/doc/vshmem/$file is not there"
done

# An administrator: what starts with the machine and with a session.
quietly systemd-analyze verify vshmem-agent-guest.service
quietly env XDG_RUNTIME_DIR=/tmp systemd-analyze verify --user vshmem-agent.service
[ "$(systemctl is-enabled vshmem-agent-guest.service)" = enabled ] ||
    fail "the front end does not start with the machine"
[ "$(systemctl --global is-enabled vshmem-agent.service)" = disabled ] ||
    fail "the back end starts in each session, which nobody asked for"
if udevadm verify --help >/dev/null 2>&1; then # from systemd 254 on
    quietly udevadm verify /usr/lib/udev/rules.d/60-vshmem.rules
fi

# The drivers, for the system's kernel.
for module in vshmem vshmem_xen; do
    file=$(find "/lib/modules/$kernel/updates/dkms" -name "$module.ko*")
    [ -n "$file" ] || fail "DKMS has not built $module.ko for $kernel: $(dkms status;
        cat /var/lib/dkms/vshmem/*/build/make.log 2>/dev/null)"
    [ "$(modinfo -F vermagic "$file" | cut -d' ' -f1)" = "$kernel" ] || fail "$module.ko is not for $kernel"
done

user vshmem lab list sharing | grep -q 'queue ping-pong' || fail "vshmem lab does not find its suites"

# Once more, as an upgrade does; then without a trace.
quietly apt-get install -y --reinstall ./vshmem_*.deb ./libvshmem1_*.deb
quietly user /tmp/program
quietly apt-get purge -y vshmem vshmem-lab libvshmem1 libvshmem-dev python3-vshmem vshmem-dkms
files >/tmp/after
diff /tmp/before /tmp/after >/tmp/left || fail "purging left: $(cat /tmp/left)"
! ldconfig -p | grep vshmem || fail "ldconfig knows the library still"
