# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A cluster that a file describes: machines that differ, with names, pools that some of them have, and places.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}f
file=$work/cluster.toml
cat >"$file" <<'TOML'
name = "not-this-one"
[[machines]]
name = "boss"
cpus = 2
memory = "384M"
[[machines]]
name = "w"
count = 1
memory = "256M"
[pools.default]
size = "64M"
machines = ["boss"]
[pools.work]
size = "16M"
[placement]
policy = "pinned"
memory = "strict"
TOML
sed 's/cpus/cpu/' "$file" >"$work/wrong.toml"
code "a key that there isn't is a mistake" 2 vshmem up "$work/wrong.toml"
contains "that is said, with its place" "wrong.toml:4:1: unknown field" "$(cat "$work/out")"
contains "and what may be meant" "Did you mean cpus?" "$(cat "$work/out")"
refused() { # refused TEXT OPTION...: a plan is refused for what the start would be refused for
    because=$1
    shift
    code "a plan says what the start would: $because" 125 vshmem up --dry-run "$@"
    contains "which is the reason" "$because" "$(cat "$work/out")"
}
refused "this host does not have the memory" --memory 4T
refused "this host has no bridge nosuch" --bridge nosuch
printf '[[machines]]\nname = "a"\nimage = "%s/nosuch.qcow2"\n' "$work" >"$work/wrong.toml"
refused "could not open $work/nosuch.qcow2" "$work/wrong.toml"
printf '[[machines]]\ndevices = ["vf of ffff:ff:1f.7"]\n' >"$work/wrong.toml"
code "a plan with a device that there isn't is refused" 1 vshmem up --dry-run "$work/wrong.toml"
contains "which is the reason" "there is no PCI function ffff:ff:1f.7" "$(cat "$work/out")"
code "and there is no cluster after a plan" 125 vshmem exec vm0 -- true
contains "which is said" "there is no cluster" "$(cat "$work/out")"
code "a host without the memory starts nothing" 125 vshmem up -n 2 --memory 900T
contains "and says so" "does not have the memory: 2 machines take" "$(cat "$work/out")"
nothing_left "nothing is left of that"
if ! LIMIT=300 vshmem up "$file" >"$work/up" 2>&1; then
    failed "the machines of a file come up" "$(cat "$work/up")"
    exit 1
fi
# They have twelve seconds on two processors. What they had of them does not depend on what else the host
# does.
took=$(time_of "$(pid_of boss)" "$(pid_of w0)")
holds "both have had $took s of processors, less than 24" awk -v took="$took" 'BEGIN { exit !(took < 24) }'
equal "they are those of the file" "['boss', 2, 384] ['w0', 1, 256]" "$(vshmem ps --json |
    field '*[[m["name"], m["cpus"], m["memory"] >> 20] for m in told["clusters"][0]["machines"]]')"
equal "each has its pools" "['default', 'work'] ['work']" "$(vshmem ps --json |
    field '*[sorted(m["pools"]) for m in told["clusters"][0]["machines"]]')"
equal "and its cores" 2 "$(vshmem exec boss -- nproc)"
where() { # where: each machine and whether it is where it should be
    vshmem ps --json | /usr/bin/python3 "$programs/placed.py"
}
equal "and their threads and memory are where they should be" "boss placed
w0 placed" "$(where)"
equal "what was preferred and could not be had is named" True "$(vshmem ps --json | field "all(
    m['name'] + ' is not placed as asked: ' + why in open('$work/up').read()
    for m in told['clusters'][0]['machines'] for why in m['placement']['fallbacks'])")"
code "the pools are there by names of this host" 0 vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER.work"
hello_over_the_network "machines find each other by name" boss w0
equal "a machine does not see a pool that is another's" work "$(vshmem exec w0 -- "$VSHMEM_BIN" ipcs --json |
    field '" ".join(pool["pool"] for pool in told["pools"])')"

pool=$VSHMEM_CLUSTER-later
its_pools() { # its_pools VM
    vshmem ps --json |
        field "*[sorted(m['pools']) for m in told['clusters'][0]['machines'] if m['name'] == '$1']"
}
pools_are() { [ "$(its_pools "$1")" = "$2" ]; }
vshmem pool create "$pool" --size 4M
vshmem grant "$pool" w0 >"$work/out"
"$VSHMEM_BIN" repair --watch >"$work/repaired" 2>&1 &
watcher=$!
kill -KILL "$(pid_of w0)"
WITHIN=120 eventually "a machine that was killed comes back, with the pools that it had" \
    pools_are w0 "['$pool', 'work']"
hello_over_the_network "and it is on the network again" w0 boss
equal "and where it was placed" "boss placed
w0 placed" "$(where)"
kill -TERM "$watcher"
holds "watching ends when it is interrupted" wait "$watcher"
vshmem revoke "$pool" w0 >"$work/out" && vshmem pool rm "$pool"

code "the same file once more" 0 vshmem up "$file"
contains "changes nothing" "is as described already" "$(cat "$work/out")"
cat >>"$file" <<'TOML'
[pools.extra]
size = "4M"
machines = ["w"]
TOML
code "what a file would change can be asked" 0 vshmem up "$file" --dry-run
equal "of a pool that is added" "live     make the pool extra
live     grant extra to w0" "$(cat "$work/out")"
code "and is changed in machines that run" 0 vshmem up "$file"
equal "which get it" "['extra', 'work']" "$(its_pools w0)"
boot=$(vshmem exec boss -- cat /proc/sys/kernel/random/boot_id)
code "a cluster grows" 0 vshmem grow
equal "by a machine like the last one" "['extra', 'work']" "$(its_pools w1)"
hello_over_the_network "which others find by its name" w1 boss
equal "and which is placed beside them" "w1 placed" "$(where | grep w1)"
sed 's/^memory = "strict"/memory = "preferred"/' "$file" >"$work/other.toml"
vshmem up "$work/other.toml" --dry-run >"$work/out"
contains "memory comes from elsewhere only after a restart" "restart  boss: vCPUs on" "$(cat "$work/out")"
sed 's/cpus = 2/cpus = 1/; s/^name = "not.*/network = false/; s/^size = "16M"/size = "8M"/' "$file" \
    >"$work/other.toml"
code "each change is told" 0 vshmem up "$work/other.toml" --dry-run
equal "with what it takes" "rebuild  network: true becomes false
rebuild  the pool work becomes another one, without what is in it
removal  end and remove w1
restart  boss: 1 core instead of 2" "$(cat "$work/out")"
code "and none is made that takes more than was permitted" 1 vshmem up "$work/other.toml" --restart --remove
contains "which is said" "nothing was changed" "$(cat "$work/out")"
code "a machine that the file does not describe is not ended by itself" 1 vshmem up "$file"
code "but if that is permitted" 0 vshmem up "$file" --remove
sed -i 's/"pinned"/"range-pinned"/' "$file"
vshmem up "$file" --dry-run >"$work/out"
equal "machines move to other cores while they run" "live live live" \
    "$(cut -d ' ' -f 1 "$work/out" | paste -s -d ' ')"
code "and do so" 0 vshmem up "$file"
equal "to those that they should be on" "boss placed
w0 placed" "$(where)"
sed '/^.pools.extra/,$d' "$file" >"$work/other.toml"
code "a pool that is described no longer is taken from machines that run" 0 vshmem up "$work/other.toml"
equal "which others don't notice" "$boot" "$(vshmem exec boss -- cat /proc/sys/kernel/random/boot_id)"
equal "it is gone from the machine" "['work']" "$(its_pools w0)"
code "and from the host" 1 vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER.extra"

vshmem down
nothing_left "nothing is left of a file's machines and pools"

# A host that has no core for the hypervisor's threads.
code "what must be had and can't is an error" 125 vshmem up -n 1 --cpus "$(nproc)" --strict cores
contains "that says why" "none is left for the emulator threads of vm0" "$(cat "$work/out")"
nothing_left "nothing is left of that"
# As on a host with two nodes; here both are one.
mkdir -p "$work/faked"
cp "$VSHMEM_BIN" "$VSHMEM_LIB" "$work/faked"
cores=$(/usr/bin/python3 -c 'import os; all = sorted(os.sched_getaffinity(0)); print(all[0], all[-1])')
first=${cores% *} last=${cores#* }
cat >"$work/faked/answer" <<JSON
{"version": 1, "topology": "faked", "machines": [{"name": "solver", "memory": 268435456,
  "rules": {"policy": "numa-first", "cores": "strict", "memory": "preferred", "smt": false,
    "reserve_cores": 1},
  "vcpus": ["$last", "$first"], "emulator": "$first", "nodes": "0",
  "guest": {"sockets": 2, "cores": 1, "threads": 1, "nodes": [
    {"vcpus": "0", "memory": 134217728, "host": 0, "distances": [10, 21]},
    {"vcpus": "1", "memory": 134217728, "host": 0, "distances": [21, 10]}]},
  "why": [], "fallbacks": []}]}
JSON
printf '#!/bin/sh\ncat >/dev/null\ncat "%s"\n' "$work/faked/answer" >"$work/faked/vshmem-place"
chmod +x "$work/faked/vshmem-place"
placed() { # placed: the cluster of the example, where the answer says
    VSHMEM_BIN=$work/faked/vshmem vshmem up "$MACHINES_ROOT/examples/cluster/placed.toml"
}
code "a machine can be placed on two nodes" 0 placed
equal "its cores are those of the host that were told, and other threads are where they should be" \
    "solver placed" "$(where)"
equal "it sees its nodes" "0 1 21 10" "$(vshmem exec solver -- sh -c '
    cd /sys/devices/system/node && echo $(cat node0/cpulist node1/cpulist node1/distance)')"
equal "and its sockets" "0 1" "$(vshmem exec solver -- sh -c '
    cat /sys/devices/system/cpu/cpu[01]/topology/physical_package_id' | paste -s -d ' ')"
equal "where its memory is is told" "[0]" "$(vshmem ps --json | field '[int(node)
    for m in told["clusters"][0]["machines"] for node in m["placement"]["resident"]["nodes"]]')"
vshmem down
sed -i "s/\"vcpus\": \\[\"$last\"/\"vcpus\": [\"0-900\"/" "$work/faked/answer"
code "a machine that is not where it must be does not come up" 125 placed
contains "which is said" "solver is not placed as it must be: virtual core 0 may run on" "$(cat "$work/out")"
nothing_left "and nothing is left of it"
rm "$work/faked/vshmem-place"
if ! PATH=/usr/bin:/bin command -v vshmem-place >/dev/null; then
    PATH=/usr/bin:/bin code "without vshmem-place there is no placement" 125 placed
    contains "which is said, too" "needs the program vshmem-place" "$(cat "$work/out")"
    nothing_left "and nothing was started"
fi
export VSHMEM_CLUSTER=$cluster
