# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# vshmem run: one process per machine.
need_machines

equal "each line is labelled" "vm0: 0 of 2,vm1: 1 of 2," \
    "$(vshmem run -- sh -c 'echo $VSHMEM_RANK of $VSHMEM_SIZE' | sort | tr '\n' ',')"
equal "machines can be chosen" "vm1" "$(vshmem run --vm vm1 --no-prefix -- uname -n)"
equal "two commands on one line" "vm0: a,vm1: b," \
    "$(vshmem run --vm vm0 -- echo a : --vm vm1 -- echo b | sort | tr '\n' ',')"
equal "the first process gets the input" "vm0: text" "$(echo text | vshmem run -- cat)"
equal "here, without machines" "p0: 0 of 3,p1: 1 of 3,p2: 2 of 3," \
    "$(VSHMEM_POOL=$work/pool vshmem run --local -n 3 -- sh -c 'echo $VSHMEM_RANK of $VSHMEM_SIZE' | sort |
    tr '\n' ',')"
clean=$'SigBlk:\t0000000000000000'
equal "programs begin with no signal blocked" "$clean
$clean" "$(vshmem run --no-prefix -- grep SigBlk /proc/self/status)"
equal "nor here" "$clean" "$(VSHMEM_POOL=$work/pool vshmem run --local --no-prefix -- grep SigBlk \
    /proc/self/status)"
equal "nor by exec" "$clean" "$(vshmem exec vm0 -- grep SigBlk /proc/self/status)"
ignored=$(trap '' HUP && VSHMEM_POOL=$work/pool "$VSHMEM_BIN" run --local --no-prefix -- grep SigIgn \
    /proc/self/status)
equal "what the caller ignores stays ignored, as under nohup" 1 "$((0x${ignored#*:?} & 1))"
code "so that timeout works" 124 vshmem run -- timeout 1 sleep 60
if [ "$(id -u)" = 0 ]; then
    who=65534
    equal "here it runs as whom it is told" "$who" \
        "$(VSHMEM_POOL=none vshmem run --local --no-prefix -u "$who" -- id -u)"
else
    code "here only root runs programs as others" 126 vshmem run --local -u 0 -- id
fi
contains "and a directory that is none is named" "there is no directory /no/such" \
    "$(vshmem run --local -C /no/such -- true 2>&1)"
code "all succeed" 0 vshmem run -- true
code "the exit code of the one that fails" 5 vshmem run -- sh -c 'exit $((VSHMEM_RANK * 5))'
code "also without machines" 6 env "VSHMEM_POOL=$work/pool" "$VSHMEM_BIN" run --local -n 2 -- sh -c 'exit 6'

began=$SECONDS
code "one failure ends the others" 9 vshmem run \
    -- sh -c 'if [ "$VSHMEM_RANK" = 0 ]; then exit 9; else sleep 60; fi'
equal "at once" "yes" "$([ $((SECONDS - began)) -lt $((15 * slow)) ] && echo yes)"
equal "unless they are to go on" "vm1: still here" \
    "$(vshmem run -k -- sh -c 'if [ "$VSHMEM_RANK" = 0 ]; then exit 9; else sleep 1; echo still here; fi')"

two_run() { [ "$(wc -l <"$work/begun")" -eq 2 ]; }
# begin COMMAND...: until two programs of it have written a line each
begin() {
    rm -f "$work/begun"
    # A shell has its background commands ignore SIGINT.
    env --default-signal=INT "$@" >"$work/begun" 2>"$work/said" &
    both=$!
    eventually "two programs run" two_run
}
# signalled SIGNAL COMMAND...: it gets the signal once both run
signalled() {
    begin "${@:2}"
    kill "-$1" "$both"
    wait "$both"
}
for signal in INT TERM; do
    code "SIG$signal ends all, also those that ignore it" 137 signalled "$signal" "$VSHMEM_BIN" run -- \
        sh -c 'trap "" INT TERM; echo; sleep 2718; sleep 2718'
    for vm in vm0 vm1; do
        eventually "nothing is left in $vm" vshmem exec "$vm" -- sh -c '! pgrep -f "sleep 271[8]"'
    done
done

handles='trap "kill \$!; exit 3" INT; echo; sleep 2719 & wait'
code "a program that handles SIGINT says how it ends" 3 signalled INT "$VSHMEM_BIN" run -- sh -c "$handles"
export VSHMEM_POOL=$work/pool
code "here, too" 3 signalled INT "$VSHMEM_BIN" run --local -n 2 -- sh -c "$handles"
begin "$VSHMEM_BIN" run --local -n 2 -- \
    sh -c 'trap "kill \$!; sleep 0.5; exit 4" INT; echo; sleep 2720 & wait'
unset VSHMEM_POOL
mkfifo "$work/silence"
exec 7<>"$work/silence"
kill -INT "$both"
# No program must be started for so short a time.
read -r -t 0.03 <&7
kill -INT "$both"
wait "$both"
equal "the same signal twice in a moment is one, as timeout sends it" 4 "$?"
exec 7>&-

vshmem exec vm0 -- mkfifo /tmp/come /tmp/go
LIMIT=300 vshmem run --vm vm0 -n 64 -- sh "$programs/meet.sh" >"$work/out" 2>"$work/err"
equal "64 commands run at once in one machine" 0 "$?"
equal "each with its own output" "$(for i in $(seq 0 63); do echo "vm0.$i: $i of 64"; done | sort)" \
    "$(sort "$work/out")"
equal "and error stream" "$(for i in $(seq 0 63); do echo "vm0.$i: $i"; done | sort)" "$(sort "$work/err")"
code "one that fails ends others in the same machine" 9 \
    vshmem run --vm vm0 -n 4 -- sh -c 'if [ "$VSHMEM_RANK" = 2 ]; then exit 9; else exec sleep 600; fi'
contains "a machine does not take endlessly many" "1024 processes in a machine, and 1025 are for vm0" \
    "$(vshmem run --vm vm0 -n 1025 -- true 2>&1)"
equal "one that floods holds up nobody" 9 "$(vshmem run --no-prefix --vm vm0 -- yes \
    : --vm vm0 -n 3 -- sh -c 'for i in 1 2 3; do echo answer; sleep 0.3; done; sleep 600' 2>&1 |
    grep -a -m 9 -c answer)"
eventually "nor does it stay" vshmem exec vm0 -- sh -c '! pgrep -x "yes|sleep"'

code "output goes to files" 3 vshmem run -k -o "$work/results/run" -- \
    sh -c 'echo "out $VSHMEM_RANK"; echo "err $VSHMEM_RANK" >&2; exit 3'
equal "of each process, and nowhere else" "out 0 err 0 out 1 err 1 " \
    "$(cd "$work/results/run" && cat 0.vm0.out 0.vm0.err 1.vm1.out 1.vm1.err "$work/out" | tr '\n' ' ')"

# One process on this kernel takes the place of vshmem.
export VSHMEM_POOL=$work/pool
code "unless its output goes to files" 4 vshmem run --local -o "$work/results" -- sh -c 'echo here; exit 4'
equal "which have it" here "$(cat "$work/results/0.local.out")"
equal "it has the number that vshmem had" same \
    "$(sh -c 'echo $$; exec "$0" run --local -- sh -c "echo \$\$"' "$VSHMEM_BIN" | uniq |
    sed '2s/.*/another/; 1s/.*/same/')"
equal "the place, variables and input that it is told" "/usr 1 0 1 text" \
    "$(echo text | vshmem run --local -C /usr -e X=1 \
    -- sh -c 'read line; echo "$PWD $X $VSHMEM_RANK $VSHMEM_SIZE $line"')"
contains "and the terminal" "a terminal
modes are as before
code 3" "$(on_terminal -- "$VSHMEM_BIN" run --local -- \
    sh -c '[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo a terminal; exit 3')"
code "a command that isn't there is 127 here, too" 127 vshmem run --local -- no-such-command
unset VSHMEM_POOL
equal "one process in a machine has no prefix either" "vm1" "$(vshmem run --vm vm1 -- uname -n)"
