#!/bin/bash
# vshmem mpirun with --exec: MPI programs on a host that is reached by a command, here name spaces in the
# place of a container. Mistakes in the command line are told in a sentence.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's System V IPC does not reach another name space"
vshmem=${VSHMEM_BIN:-$here/../../target/release/vshmem}
"$here/mpi/node" here true 2>err.log || skip "namespaces of a user's own are not allowed here: $(cat err.log)"
export VSHMEM_LIB=$PROGRAMS_LIB
echo "127.0.0.1 localhost one two" >hosts
# in-host NAME COMMAND...: as `podman exec -i NAME COMMAND...`
cat >in-host <<H
#!/bin/sh
host=\$1
shift
case \$host in one | two) ;; *) echo "there is no \$host" >&2; exit 125 ;; esac
exec unshare --user --map-root-user --uts --ipc --pid --mount --fork --kill-child --mount-proc \\
    sh -c 'hostname "\$1" && mount --bind "\$2" /etc/hosts && shift 2 && exec "\$@"' \\
    sh "\$host" "$dir/hosts" "\$@"
H
chmod +x in-host

# job HOSTS WORDS...: in these hosts
job() {
    timeout 60 "$vshmem" mpirun -host "$1" --exec "$dir/in-host {}" --pool "$pool" "${@:2}" >job.log 2>&1
}

# refused CODE TEXT HOSTS WORDS...: the job is not begun, with this exit code, and this text in the reason
refused() {
    local code=0
    job "${@:3}" || code=$?
    equal "the exit code of: ${*:3}" "$1" "$code"
    grep -qF -- "$2" job.log || fail "no '$2' from ${*:3}: $(cat job.log)"
}

mkdir below
for mpi in mpich openmpi; do
    need mpicc.$mpi "the package of $mpi for development"
    need mpiexec.$mpi "the package of $mpi"
    mpicc.$mpi -Wall -Wextra -Werror -O2 "$here/mpi/ring.c" -o below/ring.$mpi
    # A program is looked for from the directory that it is to run in.
    job one:2 -wdir "$dir/below" ./ring.$mpi || fail "$mpi: $(cat job.log)"
    grep -q '^2 processes done' job.log || fail "$mpi: $(cat job.log)"
    refused 127 "there is no program ./ring.$mpi" one:2 ./ring.$mpi
    refused 2 "no further ones behind ':'" one:2 -n 1 below/ring.$mpi : -n 1 below/ring.$mpi
done
# The names lead to one address: Open MPI takes both hosts for the first, and is found out.
for mpi in mpich openmpi; do
    job one,two below/ring.$mpi || fail "$mpi in two hosts: $(cat job.log)"
    grep -q '^2 processes done' job.log || fail "$mpi in two hosts: $(cat job.log)"
done
grep -q "the launcher in one started no ranks in two" job.log || fail "all ranks in one host: $(cat job.log)"
refused 125 "could not run a command in three" one,three below/ring.mpich
grep -q "there is no three" job.log || fail "what reaches the host is not heard: $(cat job.log)"
nothing_left || fail "objects are left: $(objects)"
echo "MPICH and Open MPI on a host that a command reaches"
