# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A cluster that a file describes: machines that differ, with names, and pools that some of them have.

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
TOML
sed 's/cpus/cpu/' "$file" >"$work/wrong.toml"
code "a key that there isn't is a mistake" 2 vshmem up "$work/wrong.toml"
contains "that is said, with its place" "wrong.toml:4:1: unknown field" "$(cat "$work/out")"
contains "and what may be meant" "Did you mean cpus?" "$(cat "$work/out")"
if ! LIMIT=300 vshmem up "$file" >"$work/up" 2>&1; then
    failed "the machines of a file come up" "$(cat "$work/up")"
    exit 1
fi
equal "they are those of the file" "['boss', 2, 384] ['w0', 1, 256]" "$(vshmem ps --json |
    field '*[[m["name"], m["cpus"], m["memory"] >> 20] for m in told["clusters"][0]["machines"]]')"
equal "each has its pools" "['default', 'work'] ['work']" "$(vshmem ps --json |
    field '*[sorted(m["pools"]) for m in told["clusters"][0]["machines"]]')"
equal "and its cores" 2 "$(vshmem exec boss -- nproc)"
code "the pools are there by names of this host" 0 vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER.work"
hello_over_the_network "machines find each other by name" boss w0
equal "a machine does not see a pool that is another's" work "$(vshmem exec w0 -- "$VSHMEM_BIN" ipcs --json |
    field '" ".join(pool["pool"] for pool in told["pools"])')"
kill -KILL "$(pid_of w0)"
code "one that was killed is started anew" 0 vshmem restart
equal "with what it had" "['w0', 1, 256, ['work']]" "$(vshmem ps --json |
    field '[[m["name"], m["cpus"], m["memory"] >> 20, m["pools"]] for m in told["clusters"][0]["machines"]][1]')"
hello_over_the_network "and it is on the network again" w0 boss

vshmem down
nothing_left "nothing is left of a file's machines and pools"
export VSHMEM_CLUSTER=$cluster
