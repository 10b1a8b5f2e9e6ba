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
code "a host without the memory starts nothing" 125 vshmem up -n 2 --memory 900T
contains "and says so" "does not have the memory: 2 machines take" "$(cat "$work/out")"
nothing_left "nothing is left of that"
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
sed '/^.pools.extra/,$d' "$file" >"$work/other.toml"
code "a pool that is described no longer is taken from machines that run" 0 vshmem up "$work/other.toml"
equal "which others don't notice" "$boot" "$(vshmem exec boss -- cat /proc/sys/kernel/random/boot_id)"
equal "it is gone from the machine" "['work']" "$(its_pools w0)"
code "and from the host" 1 vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER.extra"

vshmem down
nothing_left "nothing is left of a file's machines and pools"
export VSHMEM_CLUSTER=$cluster
