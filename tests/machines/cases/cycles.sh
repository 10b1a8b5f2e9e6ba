# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # machines expand what is quoted; lib.sh sets it
# Clusters that come and go, CYCLES (1) times, whose command is killed on the way: no process, file, mount,
# tap device or reserved page stays. As root, they have tap devices and reserved pages.

# shellcheck source=tests/machines/bridge.sh
. "$MACHINES_ROOT/tests/machines/bridge.sh"
cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}s
file=$work/cycles.toml huge=$work/huge
reserved=/proc/sys/vm/nr_hugepages
before=$(cat "$reserved")
# shellcheck disable=SC2317 # run.sh calls it
clean_up() {
    "$VSHMEM_BIN" down >/dev/null 2>&1 || true
    ! mountpoint -q "$huge" || umount "$huge"
    echo "$before" >"$reserved" 2>/dev/null || true
    bridge_ends
}

# Two slim machines take 176 pages of 2 MiB, and their pool 8.
wanted=184 has="" of=none
cat >"$file" <<TOML
[[machines]]
image = "slim"
memory = "176M"
count = 2
[pools.default]
size = "16M"
TOML
if bridge_begins; then
    has="tap devices" of=2
    printf '[network]\nbridge = "vshbr0"\naddress = "10.99.0.100/24"\n' >>"$file"
fi
{ echo $((before + wanted)) >"$reserved"; } 2>/dev/null || true
mkdir -p "$huge"
if [ "$(free_pages)" -ge "$wanted" ] &&
    mount -t hugetlbfs -o pagesize=2M hugetlbfs "$huge" 2>"$work/out"; then
    has="${has:+$has and }reserved pages"
    printf '[pages]\nmachines = "2M"\npools = "2M"\ninsist = "strict"\n' >>"$file"
fi
echo "        They have ${has:-neither tap devices nor reserved pages}."

state() { # what is there of clusters
    echo "$(free_pages) free pages, $([ "$of" = none ] || taps) taps"
    grep vshmem /proc/self/mountinfo
    find "$huge" -mindepth 1
}
cat >"$work/mortal" <<MORTAL
#!/bin/sh
exec timeout --foreground -s KILL "\$MORTAL" "$VSHMEM_BIN" "\$@"
MORTAL
chmod +x "$work/mortal"
first=$(state)
for ((cycle = 1; cycle <= ${CYCLES:-1}; cycle++)); do
    # First, when the pool has its pages, and no machine runs.
    after=0.3
    [ "$cycle" -eq 1 ] || after=$((RANDOM % 4)).$((RANDOM % 9 + 1))
    MORTAL=$after VSHMEM_BIN=$work/mortal there up "$file" >"$work/killed" 2>&1
    code "after kill $cycle of vshmem up, the next one works" 0 there up "$file" --timeout 250
    equal "and its machines take commands" "vm0 vm1" \
        "$(vshmem exec vm0 -- sh -c 'hostname') $(vshmem exec vm1 -- sh -c 'hostname')"
    [ "$of" = none ] || equal "each has a tap device" "$of" "$(taps)"
    code "it goes" 0 there down
    nothing_left "and nothing is left of it"
    equal "nor what it had of the host" "$first" "$(state)"
done
export VSHMEM_CLUSTER=$cluster
