# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Other people's programs between two machines. With MPI_FULL=1 all of them; mpi4py's tests are a case of
# their own.
. "$MPI_HERE/lib.sh"
. "$MPI_HERE/others.sh"
. "$MPI_HERE/mpi4py.sh"
begin_with_nothing
cp "$MPI_HERE"/inputs/* "$work"

if [ -n "${MPI_FULL:-}" ]; then
    netpipe NPopenmpi netpipe-openmpi 4194305
    netpipe NPmpich2 netpipe-mpich2 4194305
    lammps in.lj 2 100
    rhodopsin 2
else
    netpipe NPopenmpi netpipe-openmpi 98305
    netpipe NPmpich2 netpipe-mpich2 98305
    lammps in.lj 2 50
    mpi4py openmpi 2 -i 'test_p2p_obj$' -i 'test_cco_obj$'
fi
hpc_challenge 2
nothing_stays "all jobs end"
