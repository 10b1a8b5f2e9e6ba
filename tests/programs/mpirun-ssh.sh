#!/bin/bash
# vshmem mpirun over hosts that ssh reaches, with keys made for that: name spaces with a network between them,
# in which sshd serves one connection each time.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's System V IPC does not reach another name space"
[ "$(id -u)" = 0 ] || skip "sshd lets only its own user in where that is not root"
need ssh openssh-client
export PATH="$PATH:/usr/sbin:/sbin"
need sshd openssh-server
need ip iproute2
vshmem=${VSHMEM_BIN:-$here/../../target/release/vshmem}
nodes=$here/../mpi/programs/nodes.sh

mkdir hosts
"$nodes" up "$dir/hosts" >nodes.log 2>&1 &
network=$!
trap 'kill $network; wait $network || true' EXIT
ready() { ! kill -0 $network 2>>nodes.log || grep -qx ready nodes.log; }
eventually "two hosts to come up" ready
grep -qx ready nodes.log || skip "name spaces are not allowed here: $(tail -n 1 nodes.log)"
for host in one two; do
    "$nodes" in "$dir/hosts" $host sh -ec 'mount -t tmpfs none /run; mkdir -m 755 /run/sshd'
done

ssh-keygen -q -t ed25519 -N '' -f key
cat >sshd.conf <<C
HostKey $dir/key
AuthorizedKeysFile $dir/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
SetEnv VSHMEM_LIB=$PROGRAMS_LIB
C
# One connection to each host for all commands, as the guide has it
cat >ssh.conf <<C
Host one two
ProxyCommand $nodes in $dir/hosts %h $(command -v sshd) -i -f $dir/sshd.conf
IdentityFile $dir/key
StrictHostKeyChecking no
UserKnownHostsFile $dir/known
ControlMaster auto
ControlPath $dir/%n
ControlPersist 30
C
export VSHMEM_LIB=$PROGRAMS_LIB

# job HOSTS WORDS...: in these hosts
job() {
    timeout 90 "$vshmem" mpirun -host "$1" --exec "ssh -F $dir/ssh.conf {}" --pool "$pool" -wdir "$dir" \
        "${@:2}" >job.log 2>&1 </dev/null
}

timeout 30 ssh -F ssh.conf one true 2>ssh.log </dev/null || skip "sshd lets nobody in: $(tail -n 1 ssh.log)"
for mpi in mpich openmpi; do
    need mpicc.$mpi "the package of $mpi for development"
    need mpiexec.$mpi "the package of $mpi"
    mpicc.$mpi -Wall -Wextra -Werror -O2 "$here/mpi/ring.c" -o ring.$mpi
    job one,two --verify-transport ./ring.$mpi || fail "$mpi: $(cat job.log)"
    grep -q '^2 processes done' job.log || fail "$mpi: $(cat job.log)"
    grep -q 'have taken sysv$' job.log || fail "$mpi, but not by the pool: $(cat job.log)"
done
code=0
job one,two --mpi mpich sh -c 'exit 7' || code=$?
equal "the exit code" 7 $code
code=0
job one,three ./ring.mpich || code=$?
equal "the exit code without a host" 125 $code
grep -q "could not run a command in three by ssh" job.log || fail "a host that is not there: $(cat job.log)"
for host in one two; do ssh -F ssh.conf -O exit $host 2>>ssh.log || true; done
nothing_left || fail "objects are left: $(objects)"
echo "MPICH and Open MPI on two hosts that ssh reaches"
