#!/bin/bash
# vshmem mpirun over podman's containers, as docs/guide-mpi.md has them: each has a network, processes and a
# host name of its own, and they share a pool.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "containers share nothing by the kernel's System V IPC"
[ "$(id -u)" = 0 ] || skip "only root can connect containers where podman may have no plugin for it"
# shellcheck source=podman/setup
. "$here/podman/setup"
vshmem=${VSHMEM_BIN:-$here/../../target/release/vshmem}
export VSHMEM_LIB=$PROGRAMS_LIB

# In the place of an image with an MPI, which would have to be fetched: this system's, read-only.
mkdir -p image/etc image/tmp
for link in bin lib lib64 sbin; do ln -s usr/$link image/$link; done
tar -C image -c . | podman import - localhost/host >import.log 2>&1 ||
    skip "podman can make no image: $(tail -n 1 import.log)"
shares=()
for path in /usr /etc/alternatives /etc/ld.so.cache /etc/openmpi "$(dirname "$(readlink -f "$vshmem")")" \
    "$(dirname "$PROGRAMS_LIB")"; do
    [ ! -e "$path" ] || shares+=(--volume "$path:$path:ro")
done
printf '%s\n' "127.0.0.1 localhost" "10.99.0.1 one" "10.99.0.2 two" >names

# container NAME: one that does nothing by itself
container() {
    podman run --detach --name "$1" --hostname "$1" --network none --workdir "$dir" "${shares[@]}" \
        --volume "$dir:$dir" --volume "$(dirname "$pool"):$(dirname "$pool")" \
        --volume "$dir/names:/etc/hosts:ro" localhost/host sleep 1000 >run.log 2>&1 ||
        skip "podman can run no container: $(tail -n 1 run.log)"
    podman inspect --format '{{.State.Pid}}' "$1"
}
one=$(container one)
two=$(container two)
# The network that a plugin of podman's would give them.
ip link add name eth0 netns "$one" type veth peer name eth0 netns "$two"
nsenter -t "$one" --net sh -ec 'ip addr add 10.99.0.1/24 dev eth0; ip link set eth0 up'
nsenter -t "$two" --net sh -ec 'ip addr add 10.99.0.2/24 dev eth0; ip link set eth0 up'

# Debian 13's Level Zero, a part of hwloc, crashes in so bare a container, without Vshmem as well.
for mpi in mpich openmpi; do
    need mpicc.$mpi "the package of $mpi for development"
    need mpiexec.$mpi "the package of $mpi"
    mpicc.$mpi -Wall -Wextra -Werror -O2 "$here/mpi/ring.c" -o ring.$mpi
    timeout 90 "$vshmem" mpirun -host one,two --exec 'podman exec -i {}' --pool "$pool" --verify-transport \
        -x HWLOC_COMPONENTS=-levelzero ./ring.$mpi >job.log 2>&1 </dev/null || fail "$mpi: $(cat job.log)"
    grep -q '^2 processes done' job.log || fail "$mpi: $(cat job.log)"
    grep -q 'have taken sysv$' job.log || fail "$mpi, but not by the pool: $(cat job.log)"
done
alone() { [ "$(podman exec one pgrep -c .) $(podman exec two pgrep -c .)" = "1 1" ]; }
eventually "only their first processes to be in the containers" alone
nothing_left || fail "objects are left: $(objects)"
echo "MPICH and Open MPI in two containers of podman's"
