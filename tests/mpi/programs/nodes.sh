#!/bin/sh
# Hosts that are no machines: name spaces for all but files and processors, with a network between them.
#
#   nodes.sh up DIR [apart]            hosts one and two, with NODES=4 three and four as well, until it is
#                                      asked to end; says "ready". If they are apart, each has a /dev/shm of
#                                      its own, and a copy of /tmp: what is written there is in
#                                      DIR/HOST.files/tmp. DIR itself is the same for all
#   nodes.sh in DIR HOST COMMAND...    runs a command in one of them
set -eu

# Root needs no user name space, in which sshd would let nobody in.
user=--user
[ "$(id -u)" != 0 ] || user=

bridge() {
    cd "$1"
    printf '%s\n' "127.0.0.1 localhost" "10.99.0.1 one" "10.99.0.2 two" "10.99.0.3 three" \
        "10.99.0.4 four" >names
    mount --bind names /etc/hosts
    ip link add bridge type bridge
    ip link set bridge up
    number=0
    for host in one two three four; do
        [ $number -lt "${NODES:-2}" ] || break
        number=$((number + 1))
        unshare --net --ipc --uts --pid --mount --fork --kill-child --mount-proc "$0" host "$1" $host "$2" &
        until [ -e $host.up ]; do sleep 0.1; done
        pgrep -P $! >$host.pid
        ip link add to-$host type veth peer name eth0 netns "$(cat $host.pid)"
        ip link set to-$host master bridge up
        nsenter -t "$(cat $host.pid)" --net sh -ec \
            "ip link set lo up; ip addr add 10.99.0.$number/24 dev eth0; ip link set eth0 up"
    done
    # They end with their first processes.
    trap 'kill -KILL $(cat ./*.pid); wait' EXIT
    trap 'exit 0' TERM
    echo ready
    wait
}

apart() {
    mkdir "$2.files"
    mount -t tmpfs files "$2.files"
    mkdir -m 1777 "$2.files/tmp" "$2.files/work"
    mount --rbind . /mnt
    mount -t overlay -o "lowerdir=/tmp,upperdir=$2.files/tmp,workdir=$2.files/work" overlay /tmp
    mount --move /mnt "$1"
    mount -t tmpfs shm /dev/shm
}

host() {
    cd "$1"
    hostname "$2"
    [ "$3" != apart ] || apart "$1" "$2"
    : >"$2.up"
    # It reaps what others leave.
    exec env --ignore-signal=CHLD sleep infinity
}

case $1 in
up) exec unshare ${user:+--user --map-root-user} --net --mount "$0" bridge "$2" "${3:-}" ;;
bridge) bridge "$2" "$3" ;;
host) host "$2" "$3" "$4" ;;
in)
    process=$(cat "$2/$3.pid")
    shift 3
    exec nsenter -t "$process" ${user:+--user --preserve-credentials} --net --ipc --uts --pid --mount \
        --wd="$PWD" "$@"
    ;;
esac
