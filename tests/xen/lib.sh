# shellcheck shell=dash
# What the cases share, in dom0.

# shellcheck disable=SC2034 # for checks.sh
work=/tmp
# The machines are emulated, and may share their processors with others. A look at them takes a while, too.
# shellcheck disable=SC2034
patience=300 between=0.5
# shellcheck source=tests/lib/checks.sh
. /checks.sh

id_of() { # id_of NAME: nothing if it does not run
    cat "/tmp/$1.id" 2>/dev/null
}

# create NAME [TYPE]: starts a guest, without waiting for it
create() {
    cat >"/tmp/$1.cfg" <<C
name = "$1"
type = "${2:-pvh}"
kernel = "/guest/vmlinux"
ramdisk = "/guest/guest.img"
extra = "console=hvc0 quiet ${KERNEL:-}"
memory = ${3:-300}
vcpus = ${VCPUS:-1}
tsc_mode = "native"
on_crash = "destroy"
C
    [ -z "${NETWORK:-}" ] || echo 'vif = ["script=/etc/xen/scripts/vif"]' >>"/tmp/$1.cfg"
    start "$1"
}

start() {
    (xl create -q -e "/tmp/$1.cfg" >"/tmp/$1.xl" 2>&1 && xl domid "$1" >"/tmp/$1.new" &&
        mv "/tmp/$1.new" "/tmp/$1.id") &
}

# By a triple fault, after which it wants to be started again. One that Xen or its own kernel ended as crashed
# has another state.
has_died() {
    xl list "$1" 2>/dev/null | grep -q ' [r-][b-][p-]sr'
}

is_up() {
    [ -n "$(id_of "$1")" ] && ! has_died "$1" &&
        xenstore-read "/local/domain/$(id_of "$1")/data/answer" >/dev/null 2>&1
}

# is_up, and a guest that has died (dom0.sh says why) is started again, five times at the most
comes_up() {
    if is_up "$1"; then
        rm -f "/tmp/$1.tries"
        return
    fi
    has_died "$1" || return 1
    tries=$(($(cat "/tmp/$1.tries" 2>/dev/null) + 1))
    [ $tries -le 5 ] || return 1
    echo $tries >"/tmp/$1.tries"
    echo "        $1 has died, and is started again" >/dev/console
    xl destroy "$1"
    rm -f "/tmp/$1.id"
    start "$1"
    return 1
}

# need NAME...: guests that run; started by whoever needs them first
need() {
    for name; do
        [ -e "/tmp/$name.cfg" ] || create "$name"
    done
    for name; do
        is_up "$name" || eventually "$name is up" comes_up "$name"
        : >"/tmp/$name.up" # so much is relied on
    done
}

# destroy NAME: as if its power failed
destroy() {
    rm -f "/tmp/$1.id" "/tmp/$1.cfg" "/tmp/$1.up"
    xl destroy "$1"
}

asked=0

# ask NAME COMMAND: has a guest do something, and waits until it has; its output and exit code. Looks for the
# answer each PACE seconds, by default 1, though mostly it is told.
ask() {
    mailbox=/local/domain/$(id_of "$1")/data
    # No number comes twice, though shells count for themselves.
    asked=$((asked + 1))
    number=$$.$asked.$(cut -d" " -f1 /proc/uptime)
    xenstore-write "$mailbox/ask" "$number $2" || return 99
    waited=0
    while :; do
        answer=$(xenstore-read -R "$mailbox/answer" 2>/dev/null)
        [ "${answer%% *}" = "$number" ] && break
        waited=$((waited + ${PACE:-1}))
        if [ $waited -gt "${LIMIT:-60}" ]; then
            echo "no answer from $1; its console:"
            tail -n 30 "/var/log/xen/console/guest-$1.log"
            xl list
            return 98
        fi
        # Returns at the next change.
        timeout "${PACE:-1}" xenstore-watch -n 2 "$mailbox/answer" >/dev/null 2>&1
    done
    answer=${answer#* }
    code=${answer%% *}
    case $answer in
    *' '*) [ -z "${answer#* }" ] || printf '%s\n' "${answer#* }" ;;
    esac
    return "$code"
}

# goes_on NAME: a guest's load.pl counts on
goes_on() {
    seen=$(ask "$1" 'tail -n 1 /tmp/load')
    sleep 2
    [ -n "$seen" ] && [ "$(ask "$1" 'tail -n 1 /tmp/load')" -gt "$seen" ]
}

# serve POOL SIZE DOMAINS OPTION...: dom0 owns a pool
serve() {
    pool=$1 size=$2 domains=$3
    shift 3
    vshmem xen own "$pool" --size "$size" --to "$domains" "$@" >"/tmp/own.$pool" 2>&1 &
    echo $! >"/tmp/own.$pool.pid"
    eventually "dom0 owns the pool $pool" test -c "/dev/vshmem-xen/$pool"
}

# withdraw POOL: dom0 takes it back
withdraw() {
    kill "$(cat "/tmp/own.$1.pid")"
    eventually "dom0 has no pool $1 any more" test ! -e "/dev/vshmem-xen/$1"
}

# end_owner POOL: the process that owns it is killed, and the pool stays
end_owner() {
    kill -KILL "$(cat "/tmp/own.$1.pid")"
    wait "$(cat "/tmp/own.$1.pid")"
}

# joined NAME...: guests join what dom0 gives
joined() {
    for name; do
        ask "$name" 'test -e /tmp/join.pid || { vshmem xen join >/tmp/join 2>&1 & echo $! >/tmp/join.pid; }'
    done
}

# have POOL NAME...: guests that have joined it have a pool
have() {
    local pool="$1" name
    shift
    for name; do
        eventually "$name has the pool $pool" ask "$name" "test -c /dev/vshmem-xen/$pool"
    done
}

# How programs are run on the pool; nothing reaches the kernel's System V calls.
on_pool() { # on_pool POOL COMMAND
    echo "cd /tests; VSHMEM_POOL=$1 LD_PRELOAD=/lib/libvshmem.so forbid $2"
}

# hold POOL NAME: a program of a guest holds a semaphore
hold() {
    ask "$2" "rm -f /tmp/held; ($(on_pool "$1" "perl hold.pl 0x9999 -1")) >/tmp/held 2>&1 &"
    eventually "$2 holds a semaphore" ask "$2" 'grep -qx held /tmp/held'
}

# take POOL NAME: another one waits for it; what comes of it is in the guest's /tmp/taken
take() {
    ask "$2" "($(on_pool "$1" "perl take.pl")) >/tmp/taken 2>&1 &"
    eventually "$2 waits for it" ask "$2" "vshmem ipcs --waiters --pool $1 | grep -q 'alive .*semaphore 0'"
}
