#!/bin/sh
# Hosts that are no machines: name spaces for all but files and processors, with a network between them.
#
#   nodes.sh up DIR                    hosts one and two, until it is asked to end; says "ready"
#   nodes.sh in DIR HOST COMMAND...    runs a command in one of them
set -eu

# Root needs no user name space, in which sshd would let nobody in.
user=--user
[ "$(id -u)" != 0 ] || user=

bridge() {
    cd "$1"
    printf '%s\n' "127.0.0.1 localhost" "10.99.0.1 one" "10.99.0.2 two" >names
    mount --bind names /etc/hosts
    ip link add bridge type bridge
    ip link set bridge up
    number=0
    for host in one two; do
        number=$((number + 1))
        # shellcheck disable=SC2016 # for the inner shell
        unshare --net --ipc --uts --pid --mount --fork --kill-child --mount-proc \
            sh -c 'hostname "$1" && : >"$1.up" && exec sleep infinity' sh $host &
        until [ -e $host.up ]; do sleep 0.1; done
        pgrep -P $! >$host.pid
        ip link add to-$host type veth peer name eth0 netns "$(cat $host.pid)"
        ip link set to-$host master bridge up
        nsenter -t "$(cat $host.pid)" --net sh -ec \
            "ip link set lo up; ip addr add 10.99.0.$number/24 dev eth0; ip link set eth0 up"
    done
    # They end with their first processes.
    trap 'kill -KILL $(cat one.pid two.pid); wait' EXIT
    trap 'exit 0' TERM
    echo ready
    wait
}

case $1 in
up) exec unshare ${user:+--user --map-root-user} --net --mount "$0" bridge "$2" ;;
bridge) bridge "$2" ;;
in)
    process=$(cat "$2/$3.pid")
    shift 3
    exec nsenter -t "$process" ${user:+--user --preserve-credentials} --net --ipc --uts --pid --mount \
        --wd="$PWD" "$@"
    ;;
esac
