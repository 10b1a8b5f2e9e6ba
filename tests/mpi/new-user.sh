#!/bin/sh
# new-user.sh MPI: in a Debian 13 on which nothing is installed, as root: has a user type what the guide in
# /given says, up to jobs of that MPI on four machines. Vshmem's packages are in /given/deb.
set -eu

fail() {
    echo "the guide: $*" >&2
    exit 1
}

# shellcheck source=tests/lib/blocks.sh
. /given/blocks.sh
blocks_of /given/guide-mpi.md "From nothing to a job on four machines" /tmp/nothing
blocks_of /given/guide-mpi.md "Hosts and ranks" /tmp/hosts

# commands FILE: a block's, for that MPI
commands() {
    case $mpi in
    openmpi) sed 's/mpich libmpich-dev/openmpi-bin libopenmpi-dev/; s/mpicc\.mpich/mpicc.openmpi/' "$1" ;;
    *) cat "$1" ;;
    esac
}

# types FILE: what the user is told by these commands, of which none fails, is shown, and in /tmp/told
types() {
    chmod 644 "$1"
    { su - user -c "cd checkout && bash -euxo pipefail '$1'" 2>&1 || echo "it failed"; } | tee /tmp/told
    ! grep -qx 'it failed' /tmp/told || fail "a command failed"
}

# has_run JOBS: so many jobs have said that their ranks have found each other
has_run() {
    [ "$(grep -c '^the ranks of [0-9]* make ' /tmp/told)" -eq "$1" ] || fail "not $1 jobs have run"
}

mpi=$1
# What any Debian has, and a user who may become root.
cp /given/resolv.conf /etc/resolv.conf
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes
apt-get -qq update
apt-get -qq install --no-install-recommends sudo >/dev/null 2>&1
useradd -m -s /bin/bash user
echo 'user ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/user
mkdir -p /path/to /home/user/checkout/target
cp -r /given/deb /home/user/checkout/target
chown -R user: /home/user/checkout
cat >/path/to/program.c <<'C'
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("the ranks of %d make %d\n", size, sum);
    MPI_Finalize();
    return 0;
}
C

# From nothing to a job on four machines.
commands /tmp/nothing/1.sh >/tmp/first
types /tmp/first
has_run 2
[ "$(grep -cx 'the ranks of 4 make 6' /tmp/told)" -eq 2 ] || fail "ranks have not found each other"
grep -q 'have taken sysv$' /tmp/told || fail "they have not talked by the pool"

# Hosts and ranks, on machines that are up.
cat >/tmp/second <<'S'
cd ~/job
echo 'vm0:2 vm1:2 vm2:2 vm3:2' | tr ' ' '\n' >hosts
vshmem up -n 4
S
commands /tmp/hosts/1.sh >>/tmp/second
echo 'vshmem down' >>/tmp/second
types /tmp/second
has_run "$(grep -c '^vshmem mpirun' /tmp/second)"
