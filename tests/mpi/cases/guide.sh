# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# With MPI_FULL=1, a new user types what docs/guide-mpi.md says, in a Debian 13 on which nothing is installed:
# from the packages of Vshmem, which `make deb` has made, to jobs on four machines.
. "$MPI_HERE/lib.sh"
. "$MACHINES_ROOT/tests/system.sh"

clean_up() { as_root -- rm -rf "$work/system"; }

if [ -n "${MPI_FULL:-}" ]; then
    packages=("$MACHINES_TARGET"/deb/*.deb)
    if [ ! -e "${packages[0]}" ]; then
        echo "skip    there are no packages: 'make deb' makes them"
        exit 0
    elif ! as_root -- true 2>"$work/err"; then
        echo "skip    name spaces of our own are not allowed here: $(cat "$work/err")"
        exit 0
    elif ! archive=$(system trixie); then
        echo "skip    no system of Debian 13 can be had"
        exit 0
    fi
    vshmem down --all
    for mpi in mpich openmpi; do
        mkdir -p "$work/system/given/deb"
        cp "${packages[@]}" "$work/system/given/deb"
        cp "$MPI_HERE/new-user.sh" "$MACHINES_ROOT/tests/lib/blocks.sh" "$MACHINES_ROOT/docs/guide-mpi.md" \
            /etc/resolv.conf "$work/system/given"
        holds "a new user of $mpi follows the guide to jobs on four machines" \
            as_root -- "$MACHINES_ROOT/tests/enter.sh" "$work/system" "$archive" /given/new-user.sh "$mpi"
        clean_up
    done
fi
