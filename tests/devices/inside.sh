#!/bin/bash
# What run.sh has done in the emulated machine, as its root: this is the host here, with machines of its own.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d /tmp/devices.XXXXXX)
chmod 755 "$work"
# shellcheck disable=SC2034 # for checks.sh
slow=5 patience=60
: >"$work/passed"
: >"$work/failed"
# shellcheck source=tests/lib/checks.sh
. "$root/tests/lib/checks.sh"
vshmem() { "$VSHMEM_BIN" "$@"; }
pci=/sys/bus/pci/devices
for them in vfio nvme igb; do sh -e "$MODULES/$them" || exit 1; done
driver() { basename "$(readlink "$pci/$1/driver")"; }

cluster() { # cluster NAME DEVICES: a file, and the cluster's name
    cat >"$work/$1.toml" <<TOML
name = "$1"
network = false
doorbell = false
spare-pools = 0
[[machines]]
memory = "256M"
devices = [$2]
[pools.default]
size = "1M"
TOML
}
up() { # up NAME OPTION...: starts it
    vshmem up "$work/$1.toml" --accel kvm --kernel "$KERNEL" --share "$MODULES" --share "$root" \
        --timeout 600 --quiet "${@:2}"
}
kill_command() { # kill_command PID: one that was started beside, and the shell that waits for it
    pkill -KILL -P "$1" -x vshmem || kill -KILL "$1"
    wait "$1"
}
in_machine() { # in_machine CLUSTER COMMAND
    vshmem exec -c "$1" -u root vm0 -- sh -ec "$2"
}
named() { # named DEVICE: its state, the cluster that holds it, and what stands in the way
    vshmem devices --json | /usr/bin/python3 -c "
import json, sys
all = {it['address']: it for it in json.load(sys.stdin)['devices']}
it = all.get('$1', {})
obstacles = [that['kind'] for that in it.get('obstacles', [])]
print(it.get('state'), (it.get('holder') or {}).get('cluster', '-'), *obstacles)"
}

of_cluster() { # of_cluster NAME EXPRESSION: of a cluster, which is called c, and its first machine, m
    vshmem ps --json | /usr/bin/python3 -c "
import json, sys
c = next(it for it in json.load(sys.stdin)['clusters'] if it['name'] == '$1')
m = c['machines'][0]
print($2)"
}

# The network card, with an address: $card, and the function $pf.
need_card() {
    local it
    for it in /sys/class/net/*; do
        [ "$(basename "$(readlink "$it/device/driver")")" != igb ] || card=${it##*/}
    done
    pf=$(basename "$(readlink -f "/sys/class/net/$card/device")")
    busybox ip addr flush dev "$card"
    busybox ip addr add 10.77.0.1/24 dev "$card"
    busybox ip link set "$card" up
}
functions() { # functions: its virtual ones, each with its driver
    local it
    for it in "$pci/$pf"/virtfn*; do
        [ ! -e "$it" ] || echo "$(basename "$(readlink "$it")") $(driver "$(basename "$(readlink "$it")")")"
    done
}
held_by() { functions | sed -n "s/ $1$//p" | xargs; } # held_by DRIVER: those that it has
joins() { # joins CLUSTER NUMBER: the machine uses its function, at that address
    in_machine "$1" "sh -e $MODULES/igb
        card=\$(basename /sys/bus/pci/drivers/igbvf/0*/net/*)
        busybox ip addr add 10.77.0.$2/24 dev \$card
        busybox ip link set \$card up"
}
reaches() { # reaches CLUSTER NUMBER [TIMES]: the machine reaches that address
    in_machine "$1" "busybox ping -c ${3:-1} -W 20 10.77.0.$2"
}

[ $# -gt 0 ] || set -- nvme igb libvirt pages
for name; do
    echo "== $name"
    # shellcheck source=/dev/null
    (. "$here/cases/$name.sh") || echo "$name ended early" >>"$work/failed"
    vshmem down --all >"$work/out" 2>&1 || echo "$name left clusters that can't be ended" >>"$work/failed"
done

passed=$(wc -l <"$work/passed")
failed=$(wc -l <"$work/failed")
[ "$failed" -eq 0 ] || sed 's/^/failed: /' "$work/failed"
echo "$passed passed, $failed failed"
rm -rf "$work"
[ "$failed" -eq 0 ]
