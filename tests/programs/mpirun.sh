#!/bin/bash
# vshmem mpirun with --exec: MPI programs on a host that is reached by a command, here name spaces in the
# place of a container. What users of mpiexec write is understood; mistakes are told in a sentence.
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
    sh -c 'hostname "\$1" && mount --bind "\$2" /etc/hosts && mount --bind "\$2.\$1" "\$2.only" && shift 2 &&
        exec "\$@"' sh "\$host" "$dir/hosts" "\$@"
H
chmod +x in-host
# What only the first of them has
mkdir hosts.one hosts.two hosts.only

# job HOSTS WORDS...: in these hosts
job() {
    timeout 60 "$vshmem" mpirun -host "$1" --exec "$dir/in-host {}" --pool "$pool" "${@:2}" >job.log 2>&1 \
        </dev/null
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
# What a rank of its own MPI sees. The first to end ends the others.
cat >sees <<'S'
#!/bin/sh
rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}
[ "$rank" != 0 ] || [ -n "${DEAF:-}" ] || echo "input $(cat)"
sed -n "s/^Cpus_allowed_list:/rank $rank of $(hostname) has $FIRST $SECOND in ${PWD##*/}, processors/p" \
    /proc/self/status
[ "$rank" = 0 ] || sleep 1
exit "$1"
S
chmod +x sees
printf '# both\none slots = 1 max_slots=2\ntwo:1 # the other\n' >both
for mpi in mpich openmpi; do
    code=0 deaf=() texts=("rank 0 of one has 1 2 in below" "rank 1 of [a-z]* has 1 2 in below")
    # Open MPI 5 may hang there (docs/guide-mpi.md, "Limits").
    if [ $mpi = openmpi ] && ! command -v orted >/dev/null; then
        deaf=(-x DEAF=1)
    else
        texts+=("input given")
    fi
    echo given | timeout 60 "$vshmem" mpirun --exec "$dir/in-host {}" --pool "$pool" --mpi $mpi -f both \
        --map-by ppr:1:node --oversubscribe "${deaf[@]}" -genv FIRST 1 -x SECOND=2 --wdir "$dir/below" \
        "$dir/sees" 7 >job.log 2>&1 || code=$?
    equal "$mpi: the exit code of ranks" 7 $code
    for text in "${texts[@]}"; do
        grep -q "$text" job.log || fail "$mpi: no '$text': $(cat job.log)"
    done
done
job one:2 -l below/ring.mpich || fail "with labels: $(cat job.log)"
grep -q '^\[0\] 2 processes done' job.log || fail "no label: $(cat job.log)"

cp below/ring.mpich hosts.one/ring
refused 127 "there is no program hosts.only/ring in two" one,two hosts.only/ring
cp below/ring.mpich plain && chmod -x plain
refused 127 "executable (chmod +x)" one ./plain
printf '#!/bin/sh\nexec "$@"\n' >script && chmod +x script
refused 1 "name the MPI by --mpi" one ./script below/ring.mpich
job one:2 --mpi mpich ./script below/ring.mpich || fail "a script: $(cat job.log)"
grep -q '^2 processes done' job.log || fail "a script: $(cat job.log)"
refused 1 "true loads no MPI library" one true
refused 2 "below/ring.openmpi uses Open MPI, and --mpi names MPICH" one --mpi mpich below/ring.openmpi
echo 'int main(void) { return 0; }' | cc -static -x c - -o static
refused 126 "Link it dynamically" one ./static
refused 2 "there is no option --no-such" one --no-such below/ring.mpich

# Ranks of hosts that share a kernel are bound to cores of their own.
if [ "$(nproc)" -lt 2 ]; then
    refused 2 "two has too few processors to bind 1 ranks" one,two --mpi mpich --bind-to core ./sees 0
else
    job one,two --mpi mpich --bind-to core ./sees 0 || fail "bound: $(cat job.log)"
    equal "cores of two ranks" 2 "$(sed -n 's/.*processors//p' job.log | sort -u | wc -l)"
fi

# The names lead to one address: Open MPI 4 takes both hosts for the first, and is found out.
for mpi in mpich openmpi; do
    job one,two below/ring.$mpi || fail "$mpi in two hosts: $(cat job.log)"
    grep -q '^2 processes done' job.log || fail "$mpi in two hosts: $(cat job.log)"
done
if command -v orted >/dev/null; then
    grep -q "the launcher in one started no ranks in two" job.log ||
        fail "all ranks in one host: $(cat job.log)"
fi
refused 125 "could not run a command in three" one,three below/ring.mpich
grep -q "there is no three" job.log || fail "what reaches the host is not heard: $(cat job.log)"
nothing_left || fail "objects are left: $(objects)"
echo "MPICH and Open MPI on a host that a command reaches"
