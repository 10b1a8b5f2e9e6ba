# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Messages and collectives between machines, by the MPIs that Debian has: with contents and results checked.
. "$MPI_HERE/lib.sh"
begin_with_nothing

for mpi in mpich openmpi; do
    equal "$mpi: messages of 1 B to 4 MiB between two machines" "points: 2 ranks on 2 hosts" \
        "$(MPIRUN=--verify-transport job $mpi 2 points 2>"$work/err")"
    equal "$mpi: by the pool alone" "sysv" "$(taken)"
    equal "$mpi: collectives" "collectives: 2 ranks on 2 hosts" "$(job $mpi 2 collectives 2>&1)"
    # Two ranks on a processor that has other work, too.
    equal "$mpi: messages of four ranks" "points: 4 ranks on 2 hosts" "$(job $mpi 4 points 65536 2>&1)"
    equal "$mpi: collectives of four ranks" "collectives: 4 ranks on 2 hosts" "$(job $mpi 4 collectives 2>&1)"
done
nothing_stays "all jobs end"

# A terminal shows what a job waits for that has printed nothing.
late="sleep 2; exec $MPI_PROGRAMS/mpich/points 65536"
shown=$(on_terminal -- "$VSHMEM_BIN" mpirun --mpi mpich -n 2 sh -c "$late")
contains "a silent job says where MPI runs" \
    $'\r\e[Kvshmem: MPI runs in vm0, vm1, and the program has printed nothing' "$shown"
contains "until it prints" $'\r\e[Kpoints: 2 ranks on 2 hosts\nmodes are as before\ncode 0' "$shown"
equal "and only to a terminal" "points: 2 ranks on 2 hosts" \
    "$(vshmem mpirun --mpi mpich -n 2 sh -c "$late" 2>&1)"
qemu=$(pid_of vm1)
kill -STOP "$qemu"
shown=$(on_terminal "wait:vshmem: waiting for vm1 to answer" "run:kill -CONT $qemu" -- \
    "$VSHMEM_BIN" mpirun -n 2 "$MPI_PROGRAMS/mpich/points" 65536)
contains "it names a machine that does not answer" \
    $'points: 2 ranks on 2 hosts\nmodes are as before\ncode 0' "$shown"
nothing_stays "these jobs end"

# The next release of an MPI must not stop anybody: Debian's MPICH, whose files say that it is another one.
fake=$MPI_PROGRAMS/fake
rm -rf "$fake"
mkdir -p "$fake/lib" "$fake/bin"
for name in mpiexec.mpich:mpiexec hydra_pmi_proxy:hydra_pmi_proxy; do
    cp -L "$(command -v "${name%:*}")" "$fake/bin/${name#*:}"
done
library=$(ldd "$MPI_PROGRAMS/mpich/points" | awk '$1 ~ /^libmpich/ { print $3 }')
/usr/bin/python3 - "$library" "$fake/lib/${library##*/}" "$("$VSHMEM_BIN" library-version "$library" |
    awk 'NR == 1 { print $NF }')" <<'PYTHON'
import pathlib
import sys

library, copy, version = sys.argv[1:]
other = ("9.9." + "9" * len(version))[: len(version)]
bytes = pathlib.Path(library).read_bytes()
texts = [b"\0" + text.encode() + b"\0" for text in (version, other)]
pathlib.Path(copy).write_bytes(bytes.replace(*texts))
PYTHON
code "a program is linked with an MPI of version 9.9" 0 \
    mpicc.mpich -O2 "$MPI_HERE/programs/points.c" -o "$fake/points" -Wl,-rpath,"$fake/lib"
equal "and runs in two machines" "points: 2 ranks on 2 hosts" \
    "$(vshmem mpirun -n 2 "$fake/points" 2>"$work/err")"
contains "with a warning" ", and Vshmem was tested with 4.0.2 to" "$(cat "$work/err")"
contains "that names its version" " is MPICH 9.9." "$(cat "$work/err")"
equal "and no other" 1 "$(wc -l <"$work/err")"
nothing_stays "that job ends"
