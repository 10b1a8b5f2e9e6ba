#!/bin/sh
# In a machine: starts the unit of the front end by a systemd in name spaces of its own, and has it take the
# port of the machine's own front end. Prints how the kernel confines it then.
#
#   unit.sh UNIT PROGRAM    PROGRAM: of this the unit starts a copy, /run/front-end/vshmem
unit=$1 program=/run/front-end/vshmem
mkdir -p /run/systemd/system/front.service.d /sys/fs/cgroup/systemd /run/front-end
cp "$2" "$program"
cp "$unit" /run/systemd/system/front.service
# Nothing else is started, and systemd takes this for a container.
printf '[Unit]\nDefaultDependencies=no\nConditionVirtualization=\n' \
    >/run/systemd/system/front.service.d/here.conf
cat >/run/systemd/start <<'START'
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec env -i PATH=/usr/sbin:/usr/bin container=test /lib/systemd/systemd --system --unit=front.service \
    --log-target=console --show-status=no
START
sh -c 'echo $$ >/sys/fs/cgroup/systemd/cgroup.procs
    exec unshare --pid --fork --kill-child --mount --cgroup --mount-proc sh /run/systemd/start' \
    </dev/null >/tmp/systemd.log 2>&1 &

front_end() { # front_end PROGRAM: the process that it is
    for process in /proc/[0-9]*; do
        case $(tr '\0' ' ' 2>/dev/null <"$process/cmdline") in
        "$1 agent --guest"*) echo "$process" && return ;;
        esac
    done
}

for _ in $(seq 100); do
    process=$(front_end "$program")
    if [ -n "$process" ] && find "$process/fd" -lname '*/vport*' 2>/dev/null | grep -q .; then
        awk '/^Seccomp:|^NoNewPrivs|^CapBnd/ { printf "%s%s", s, $2; s = " " }' "$process/status"
        exit
    fi
    # The machine starts it again after a second, and the unit's looks for the port each second.
    own=$(front_end /proc/self/exe)
    [ -z "$own" ] || kill -KILL "${own#/proc/}"
    sleep 0.2
done
cat /tmp/systemd.log
