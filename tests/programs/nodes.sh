#!/bin/bash
# MPICH's processes on nodes that have nothing in common but a pool, as machines and containers: UCX finds, by
# libvshmem-ucx, that it can reach the others through System V shared memory, and that they live.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need mpicc.mpich libmpich-dev
need mpiexec.mpich mpich
[ "$PROGRAMS_MODE" = vshmem ] || skip "the kernel's System V IPC does not reach another name space"
"$here/mpi/node" here true 2>err.log || skip "namespaces of a user's own are not allowed here: $(cat err.log)"
for program in ring late; do mpicc.mpich -Wall -Wextra -Werror -O2 "$here/mpi/$program.c" -o $program; done
cc -Wall -Wextra -Werror -O2 "$here/mpi/keepalive.c" -o keepalive -lucp -lucs

export UCX_TLS=sysv,self UCX_MEM_MMAP_HOOK_MODE=none UCX_ADAPTIVE_PROGRESS=n
ucx=$(dirname "$PROGRAMS_LIB")/libvshmem_ucx.so
# Processes of one node, too, talk by UCX, not by MPICH's own shared memory.
export MPIR_CVAR_NOLOCAL=1

program=./ring
# job PROCESSES PRELOAD [WORDS...]: the program on the nodes one and two in turn, each behind these words
job() {
    local processes=$1 preload=$2
    shift 2
    timeout 60 mpiexec.mpich -launcher ssh -launcher-exec "$here/mpi/node" -hosts one,two -n "$processes" \
        env LD_PRELOAD="$preload" VSHMEM_POOL="$pool" "$@" "$PROGRAMS_FORBID" $program >job.log 2>&1
}

# What a rank writes goes to a file of its own: MPICH's launcher loses, now and then, the output of a job
# whose ranks fail at once, and ends with 0.
printf '#!/bin/sh\nexec "$@" >>ranks.log 2>&1\n' >to-file
chmod +x to-file

# refused WHY PRELOAD [WORDS...]: two processes end because UCX reaches nobody
refused() {
    local why=$1 preload=$2
    shift 2
    rm -f ranks.log
    job 2 "$preload" ./to-file "$@" || true
    grep -q "sysv/memory - Destination is unreachable" ranks.log || fail "$why: $(cat job.log ranks.log)"
    ! grep -q "processes done" ranks.log || fail "$why: $(cat job.log ranks.log)"
}

refused "without libvshmem-ucx the processes found each other" "$PROGRAMS_LIB"
for processes in 2 3 4; do
    job $processes "$PROGRAMS_LIB:$ucx" || fail "$processes processes: $(cat job.log)"
    equal "output" "$processes processes done" "$(cat job.log)"
done

# What reaches processes of the same node alone is used for them, and for no others: their pids are the same.
export UCX_TLS=sysv,posix,cma,self UCX_LOG_LEVEL=info
job 4 "$PROGRAMS_LIB:$ucx" || fail "with all of UCX's shared memory: $(cat job.log)"
for text in "4 processes done" "tag(sysv/memory) " "tag(sysv/memory cma/memory)"; do
    grep -qF "$text" job.log || fail "with all of UCX's shared memory, no '$text': $(cat job.log)"
done
export UCX_TLS=sysv,self UCX_LOG_LEVEL=warn

# Processes of two pools don't take each other's segments for their own, though the ids are the same.
printf '#!/bin/sh\n[ "$(hostname)" = one ] || export VSHMEM_POOL=%s\nexec "$@"\n' "$pool.other" >by-node
chmod +x by-node
refused "processes of two pools reached each other" "$PROGRAMS_LIB:$ucx" ./by-node
# By TCP they do, and those of one pool by that as before. The settings are those of vshmem mpirun.
export UCX_TLS=sysv,tcp,self UCX_TCP_PUT_ENABLE=n VSHMEM_UCX_YIELD=1 UCX_LOG_LEVEL=info
job 4 "$PROGRAMS_LIB:$ucx" ./by-node || fail "over two pools and TCP: $(cat job.log)"
for text in "4 processes done" "tag(tcp/" "tag(sysv/memory"; do
    grep -qF "$text" job.log || fail "over two pools and TCP, no '$text': $(cat job.log)"
done
# One that ends first acknowledges what the other sends at its own end: else that would never end.
program=./late UCX_LOG_LEVEL=warn
job 2 "$PROGRAMS_LIB:$ucx" ./by-node || fail "an end that is late: $(cat job.log)"
equal "output of late" "5 came" "$(cat job.log)"
unset UCX_TCP_PUT_ENABLE
export UCX_TLS=sysv,self
# Two that watch each other, as UCX does where it is asked to: they hear of the other's end, and not before,
# though both have the same pid.
watch() { # watch NODE FILE OTHERS_FILE
    exec env UCX_SYSV_ERROR_HANDLING=y UCX_KEEPALIVE_INTERVAL=100ms "$here/mpi/node" "$1" \
        env LD_PRELOAD="$PROGRAMS_LIB:$ucx" VSHMEM_POOL="$pool" "$PROGRAMS_FORBID" ./keepalive "$2" "$3"
}
(watch one one.address two.address) >one.log 2>&1 &
one=$!
(watch two two.address one.address) >two.log 2>&1 &
two=$!
connected() { grep -q connected one.log && grep -q connected two.log; }
eventually "both to be connected" connected
sleep 2
equal "the first, while both live" connected "$(cat one.log)"
kill -KILL $two
wait $two 2>/dev/null || true
heard() { [ "$(wc -l <one.log)" -ge 2 ]; }
eventually "the first to hear of the second's end" heard
equal "what it hears" "Connection reset by remote peer" "$(tail -n 1 one.log)"
wait $one
nothing_left || fail "objects are left: $(objects)"
echo "2 to 4 processes on two nodes; none over two pools but by TCP; the end of a peer"
