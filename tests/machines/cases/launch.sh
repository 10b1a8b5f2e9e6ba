# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# vshmem mpirun: what a launcher may have started in other machines, and what ends with it. The launcher and
# its daemon are shell scripts that pass for MPICH's.
need_machines

mpi=$work/mpi
mkdir -p "$mpi/bin" "$mpi/lib"
# What tells an MPI and the versions.
echo 'char ucp[] = "1.13.1";' | cc -x c - -shared -Wl,-soname,libucp.so.0 -o "$mpi/lib/libucp.so.0" || exit 1
echo 'char mark[] = "MPICH Version:", version[] = "4.0.2";' |
    cc -x c - -shared -Wl,--no-as-needed,-soname,libmpich.so.12,-rpath,"$mpi/lib" -x none \
        "$mpi/lib/libucp.so.0" -o "$mpi/lib/libmpich.so.12" || exit 1
# The launcher runs the last word of what it is to launch, which may have commands run in other machines.
cat >"$mpi/bin/mpiexec.hydra" <<'L'
#!/bin/sh
# HYDRA build
rsh=$4
daemon=${0%/*}/hydra_pmi_proxy
there() { # there VM SCRIPT: in another machine, by the daemon
    "$rsh" -x "$1" "\"$daemon\"" sh -c "'$2'"
}
for last; do :; done
eval "$last"
L
printf '#!/bin/sh\nexec "$@"\n' >"$mpi/bin/hydra_pmi_proxy"
chmod 755 "$mpi"/bin/*

job=("$VSHMEM_BIN" mpirun --mpi "$mpi/bin/mpiexec.hydra" --vm "vm0,vm1" -n 2 -- sh -c)
launch() { # launch SCRIPT: in vm0
    timeout --kill-after=10 $((${LIMIT:-60} * slow)) "${job[@]}" "$1"
}
# left VM: processes of ours there
left() {
    vshmem exec -n "$1" -- sh -c 'pgrep -a -f "^sleep 314[1]|hydra_pmi_prox[y]|mpiexec.hydr[a]|[r]sh --relay"'
}
nothing_stays() { # nothing_stays WHEN
    local vm
    for vm in vm0 vm1; do
        eventually "$1: nothing stays in $vm" eval "[ -z \"\$(left $vm)\" ]"
    done
}

equal "the launcher runs in the first machine, and others where it wants them" "vm0 vm1 5 vm0 6" \
    "$(launch 'uname -n; there vm1 "uname -n; exit 5"; echo $?
    there vm0 "uname -n; exit 6"; echo $?' | xargs)"
code "its exit code is the job's" 7 launch 'exit 7'
equal "it gets the input" "text" "$(echo text | launch 'cat')"
said=$(launch '"$rsh" vm1 rm -r /tmp; echo $?; "$rsh" vm9 "$daemon"; echo $?' 2>&1)
equal "what is not the daemon is refused, and so is a machine of no job" "255 255" \
    "$(grep -x 255 <<<"$said" | xargs)"
contains "which is said" "vm0 asked for a command in vm1, which was refused" "$said"
contains "for each" "vm0 asked for a command in vm9, which was refused: the job has no such host" "$said"
equal "a command ends with its remote shell" "ended" "$(launch '"$rsh" vm1 "$daemon" sleep 3141 &
    until there vm1 "pgrep -f ^sleep.314[1] >/dev/null"; do sleep 0.2; done; kill -9 $!
    while there vm1 "pgrep -f ^sleep.314[1] >/dev/null"; do sleep 0.2; done; echo ended')"
code "daemons and what they leave end with the job" 0 launch 'there vm1 "setsid sleep 3141 >/dev/null 2>&1 &"
    setsid sleep 3141 >/dev/null 2>&1 &'
nothing_stays "once a job has ended"

# begin: a job with a command in each machine, in the background
begin() {
    rm -f "$work/said"
    "${job[@]}" 'there vm1 "echo began; exec sleep 3141" & there vm0 "exec sleep 3141" & exec sleep 3141' \
        >"$work/said" 2>&1 &
    running=$!
    eventually "a job runs" grep -q began "$work/said"
}
# over WITHIN: sets `ended` to the job's exit code, and whether it ended in so many seconds
over() {
    local began=$SECONDS status=0
    wait "$running" || status=$?
    ended="$status too late"
    [ $((SECONDS - began)) -gt $(($1 * slow)) ] || ended="$status in time"
}
begin
kill -KILL "$(pid_of vm1)"
over 5
equal "a machine that dies ends the job within five seconds" "125 in time" "$ended"
contains "with its name" "vm1: the machine has gone away" "$(cat "$work/said")"
LIMIT=300 vshmem restart vm1 >"$work/restarted" 2>&1
nothing_stays "where a machine has died"
begin
LIMIT=300 vshmem restart vm0 >"$work/restarted" 2>&1
over 5
equal "so does the first machine's restart" "125 in time" "$ended"
contains "with its name, too" "vm0: the machine has gone away" "$(cat "$work/said")"
nothing_stays "where the first machine was restarted"
begin
kill -KILL "$running"
wait "$running" 2>/dev/null
nothing_stays "where vshmem mpirun is killed"
begin
kill -STOP "$(pid_of vm1)"
kill -TERM "$running"
over 12
equal "a machine that stands still does not hold up the end" "143 in time" "$ended"
contains "and is told from one that died" "vm1: the machine does not answer" "$(cat "$work/said")"
kill -CONT "$(pid_of vm1)"
nothing_stays "when it goes on"
