#!/bin/bash
# shellcheck disable=SC2016 # shells and perl expand what is quoted
# shown.sh DIRECTORY: what commands show in terminals of 24x80 and 30x120, as the files NAME-80 and NAME-120
# in the directory. In a name space of its own, where there are no pools but these, and no machines.
set -eu

out=$1
here=$(cd "$(dirname "$0")" && pwd)
mount -t tmpfs none /dev/shm
unset VSHMEM_CLUSTER VSHMEM_POOL
export XDG_RUNTIME_DIR=$out/run XDG_CACHE_HOME=$out/cache
mkdir -m 700 "$XDG_RUNTIME_DIR"

shown() { # shown NAME COMMAND...: options of screen.py are in `options`
    local size
    for size in 24x80 30x120; do
        # shellcheck disable=SC2086 # a list of words
        /usr/bin/python3 "$here/../../lib/screen.py" $size "${options[@]}" -- "${@:2}" \
            >"$out/$1-${size#*x}" 2>"$out/long" || {
            echo "$1 in $size: exit code $?:"
            cat "$out/long"
        }
    done
}

options=()
cd "$out"
shown help vshmem --help
shown nothing bash -c 'for command in ps "pool ls" ipcs "top --once"; do
    echo "$ vshmem $command"
    vshmem $command
done'
shown errors bash -c 'while read -r command; do
    echo "$ $command"
    eval "$command"
done <<COMMANDS
vshmem downn
vshmem up --machine 2
vshmem up nosuch.toml
vshmem up --image debian/99
vshmem exec vm0 -- true
vshmem run --local -- nosuch
vshmem pool create x --size 3
vshmem grant x vm0
vshmem agent --status
COMMANDS'
shown up vshmem up -n 3 --cpus 2 --memory 256M --pool-size 64M --overcommit --dry-run

vshmem pool create work --size 64M
vshmem pool create a-pool-of-a-longer-name --size 16M
export VSHMEM_POOL=work
vshmem run --local -- perl -e '
    my $queue = msgget(0x1234, 01600) // die;
    msgsnd($queue, pack("l! a*", 1, "text"), 0) or die;
    shmget(0x99, 123456, 01600) // die;
    semget(0x77, 3, 01640) // die'
vshmem run --local -- perl -e '$0 = "waits"; semop(semget(0x77, 3, 0), pack("s3", 1, -1, 0))' &
waiter=$!
until vshmem ipcs --waiters | grep -q "semaphore 1"; do sleep 0.1; done
unset VSHMEM_POOL
shown pools vshmem pool ls
shown ipcs vshmem ipcs
shown waiters vshmem ipcs --waiters
options=(--until " semaphores" --keys q)
shown top vshmem top
kill "$waiter"
