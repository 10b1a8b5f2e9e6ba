# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# vshmem run: one process per machine.
need_machines

equal "each line is labelled" "vm0: 0 of 2,vm1: 1 of 2," \
    "$(vshmem run -- sh -c 'echo $VSHMEM_RANK of $VSHMEM_SIZE' | sort | tr '\n' ',')"
equal "machines can be chosen" "vm1" "$(vshmem run --vm vm1 --no-prefix -- uname -n)"
equal "two commands on one line" "vm0: a,vm1: b," \
    "$(vshmem run --vm vm0 -- echo a : --vm vm1 -- echo b | sort | tr '\n' ',')"
equal "the first process gets the input" "vm0: text" "$(echo text | vshmem run -- cat)"
equal "here, without machines" "p0: 0 of 3,p1: 1 of 3,p2: 2 of 3," \
    "$(VSHMEM_POOL=$work/pool vshmem run --local -n 3 -- sh -c 'echo $VSHMEM_RANK of $VSHMEM_SIZE' | sort | tr '\n' ',')"
clean=$'SigBlk:\t0000000000000000'
equal "programs begin with no signal blocked" "$clean
$clean" "$(vshmem run --no-prefix -- grep SigBlk /proc/self/status)"
equal "nor here" "$clean" "$(VSHMEM_POOL=$work/pool vshmem run --local --no-prefix -- grep SigBlk /proc/self/status)"
equal "nor by exec" "$clean" "$(vshmem exec vm0 -- grep SigBlk /proc/self/status)"
code "so that timeout works" 124 vshmem run -- timeout 1 sleep 60
if [ "$(id -u)" = 0 ]; then
    who=65534
    equal "here it runs as whom it is told" "$who" "$(VSHMEM_POOL=none vshmem run --local --no-prefix -u "$who" -- id -u)"
else
    code "here only root runs programs as others" 126 vshmem run --local -u 0 -- id
fi
contains "and a directory that is none is named" "there is no directory /no/such" "$(vshmem run --local -C /no/such -- true 2>&1)"
code "all succeed" 0 vshmem run -- true
code "the exit code of the one that fails" 5 vshmem run -- sh -c 'exit $((VSHMEM_RANK * 5))'
code "also without machines" 6 env "VSHMEM_POOL=$work/pool" "$VSHMEM_BIN" run --local -n 2 -- sh -c 'exit 6'

began=$SECONDS
code "one failure ends the others" 9 vshmem run -- sh -c 'if [ "$VSHMEM_RANK" = 0 ]; then exit 9; else sleep 60; fi'
equal "at once" "yes" "$([ $((SECONDS - began)) -lt 15 ] && echo yes)"
equal "unless they are to go on" "vm1: still here" \
    "$(vshmem run -k -- sh -c 'if [ "$VSHMEM_RANK" = 0 ]; then exit 9; else sleep 1; echo still here; fi')"

for signal in INT TERM; do
    code "SIG$signal ends all, also those that ignore it" 137 \
        timeout --preserve-status -s "$signal" 2 "$VSHMEM_BIN" run -- \
        sh -c 'trap "" INT TERM; sleep 2718; sleep 2718'
    for vm in vm0 vm1; do
        eventually "nothing is left in $vm" vshmem exec "$vm" -- sh -c '! pgrep -f "sleep 271[8]"'
    done
done
