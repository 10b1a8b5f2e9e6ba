# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# vshmem exec: real programs in real machines.
need_machines
export TERM=${TERM:-dumb}

code "true succeeds" 0 vshmem exec vm0 -- true
code "false fails" 1 vshmem exec vm1 -- false
code "an exit code is passed on" 77 vshmem exec vm0 -- sh -c 'exit 77'
code "a signal becomes 128 and its number" 137 vshmem exec vm0 -- sh -c 'kill -9 $$'
code "a command that isn't there is 127" 127 vshmem exec vm0 -- no-such-command
code "a file that can't be run is 126" 126 vshmem exec vm0 -- /etc/passwd
code "a machine that isn't there is our failure" 125 vshmem exec vm9 -- true
code "a directory that isn't there is refused" 126 vshmem exec -C /no/such vm0 -- true

equal "each machine has its name" "vm0 vm1" \
    "$(vshmem exec vm0 -- uname -n) $(vshmem exec vm1 -- uname -n)"
equal "python runs" "42" "$(vshmem exec vm0 -- /usr/bin/python3 -c 'print(6*7)')"
equal "perl runs" "42" "$(vshmem exec vm1 -- perl -e 'print 6*7')"
equal "both outputs stay apart" "out" "$(vshmem exec vm0 -- sh -c 'echo out; echo err >&2' 2>"$work/err")"
equal "the error stream arrives" "err" "$(cat "$work/err")"
equal "variables are set" "a b" "$(vshmem exec -e X='a b' vm0 -- sh -c 'echo "$X"')"
equal "a command starts where we are" "/usr/lib" "$(cd /usr/lib && vshmem exec vm0 -- pwd)"
equal "a command is ours" "$(id -u):$(id -g)" "$(vshmem exec vm0 -- sh -c 'echo "$(id -u):$(id -g)"')"
equal "another user can be named" "65534:65534" \
    "$(vshmem exec -u 65534:65534 vm0 -- sh -c 'echo "$(id -u):$(id -g)"')"

head -c 10000000 /dev/urandom >"$work/data"
vshmem exec vm0 -- cat <"$work/data" >"$work/copy"
equal "ten megabytes go in and come out" "$(sha256sum <"$work/data")" "$(sha256sum <"$work/copy")"
equal "files in the host's /tmp can be named" "$(sha256sum "$work/data")" \
    "$(vshmem exec vm0 -- sha256sum "$work/data")"
equal "input that nobody reads does not hang" "0" \
    "$(vshmem exec vm0 -- true <"$work/data" >/dev/null 2>&1; echo $?)"
vshmem exec vm0 -- yes 2>/dev/null | head -n 1000 | tail -n 1 >"$work/copy"
equal "a reader that leaves ends the command" "y" "$(cat "$work/copy")"
eventually "and the command is gone" vshmem exec vm0 -- sh -c '! pgrep -x yes'
equal "a reader that is slow gets all" "$(head -c 2000000 "$work/data" | sha256sum)" \
    "$(vshmem exec vm0 -- head -c 2000000 "$work/data" | { sleep 0.5 && sha256sum; })"
# Whose end is looked at further below.
mkfifo "$work/unread"
sleep 3143 <>"$work/unread" &
reader=$!
"$VSHMEM_BIN" exec vm0 -- sh -c 'yes; sleep 3144' >"$work/unread" 2>"$work/unread.err" &
unread=$!

marker=$work/run/marker
vshmem exec vm0 -- sh -c "mkdir -p '$work' /opt/x && echo private >/opt/x/file && echo private >/tmp/marker"
equal "what a machine writes stays in it" "private" \
    "$(vshmem exec vm0 -- cat /opt/x/file /tmp/marker | sort -u)"
code "the host does not see it" 1 test -e /opt/x/file -o -e "$marker" -o -e /tmp/marker
code "nor does the other machine" 1 vshmem exec vm1 -- test -e /opt/x/file -o -e /tmp/marker

echo 'echo first' >"$work/script"
vshmem exec vm0 -- sh "$work/script" >"$work/out"
echo 'echo second' >"$work/script"
equal "a file that was changed on the host is seen changed" "second" "$(vshmem exec vm0 -- sh "$work/script")"

pids=()
for i in 1 2 3 4 5 6; do
    vshmem exec vm0 -- sh -c "sleep 0.5; echo $i" >"$work/parallel$i" &
    pids+=($!)
done
wait "${pids[@]}"
equal "six commands run at once" "123456" "$(cat "$work"/parallel? | tr -d '\n')"

hello_over_the_network "machines reach each other by name" vm0 vm1

timeout -s KILL 1 "$VSHMEM_BIN" exec vm1 -- sh -c 'trap "" TERM INT HUP; setsid sleep 3141 & sleep 3142' \
    >"$work/out" 2>&1
eventually "nothing survives a vshmem that is killed" vshmem exec vm1 -- sh -c '! pgrep -f "sleep 314[12]"'

kill -TERM "$unread"
sleep 0.2
kill -TERM "$unread"
# Its own pools: names mean those that it was given, then those that it made.
code "a machine makes a pool of its own" 0 vshmem exec vm1 -- "$VSHMEM_BIN" pool create own --size 16M
code "not of the name of one that it was given" 1 vshmem exec vm1 -- "$VSHMEM_BIN" pool create default \
    --size 16M
contains "and is told so" "This machine was given a pool of that name by its host: choose another name." \
    "$(cat "$work/out")"
equal "both are listed" "default own" \
    "$(vshmem exec vm1 -- "$VSHMEM_BIN" pool ls --json | field '*sorted(p["name"] for p in told["pools"])')"
code "a program of it finds its own by name" 0 vshmem run --vm vm1 -e VSHMEM_POOL=own \
    -- perl -e 'defined msgget(0x777, 01600) or die "msgget: $!"'
contains "where ipcs shows what it made" "0x00000777" "$(vshmem exec vm1 -- "$VSHMEM_BIN" ipcs --pool own)"
code "what is neither is not made" 3 vshmem run --vm vm1 -e VSHMEM_POOL=other \
    -- perl -e 'exit(defined msgget(0x777, 01600) ? 0 : 3)'
code "it is removed" 0 vshmem exec vm1 -- "$VSHMEM_BIN" pool rm own

# It has had five seconds.
status=0
WITHIN=15 eventually "where nobody reads, a signal ends the command" eval "! kill -0 $unread 2>/dev/null"
wait "$unread" || status=$?
equal "with the code of the signal" 143 "$status"
contains "and says what it lacks" "nobody reads the commands' output" "$(cat "$work/unread.err")"
kill "$reader"
eventually "and nothing of it is left" vshmem exec vm0 -- sh -c '! pgrep -x "yes|sleep"'
# Channels: a command that finds none waits.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
    vshmem exec vm0 -- sh -c 'sleep 1; echo done' >"$work/exec.$i" 2>"$work/waits.$i" &
done
wait
equal "14 commands at a time are served" 14 "$(cat "$work"/exec.* | grep -cx "done")"
contains "and those that wait say why" "this one waits until one of them ends" "$(cat "$work"/waits.*)"

# A terminal. What is typed before a line has ended stands in it, and a ctrl-C that dash gets before it has
# started a program ends neither: so perl says when it runs.
shown=$(on_terminal 'wait:ready\r\n' size:50x132 'send:x\n' 'wait:50 132' 'wait:again\r\n' 'send:\x03' -- \
    "$VSHMEM_BIN" exec -t vm0 -- sh -c 'tty; echo "$TERM"; stty size; echo ready
        read line; stty size; perl -e "\$| = 1; print qq(again\n); sleep 600"; echo late')
contains "exec -t gives a command a terminal" "/dev/pts/" "$shown"
contains "which is called as the user's" "$TERM
24 80
ready" "$shown"
contains "changes its size as that does, and passes ctrl-C on" "x
50 132
again
^Cmodes are as before
code 130" "$shown"
equal "its exit code is passed on, and the terminal is as before" "modes are as before code 7" \
    "$(on_terminal -- "$VSHMEM_BIN" exec -t vm0 -- sh -c 'exit 7' | tr '\n' ' ' | sed 's/ $//')"
equal "also when vshmem is told to end" "runs modes are as before code 143" \
    "$(on_terminal wait:runs kill:TERM -- "$VSHMEM_BIN" exec -t vm0 -- sh -c 'echo runs; exec sleep 600' |
    tr '\n' ' ' | sed 's/ $//')"
contains "where there is no terminal, it is refused" "standard input is no terminal" \
    "$(vshmem exec -t vm0 -- true 2>&1)"
shown=$(cd /usr/lib && on_terminal 'send:echo $0 $((6*7)) $PWD; exit 5\n' -- "$VSHMEM_BIN" \
    shell -e SHELL=/bin/bash vm0)
contains "vshmem shell is a login shell" "-bash 42 /usr/lib" "$shown"
contains "whose exit code is passed on" "code 5" "$shown"
contains "the machine's own where it lacks the user's" "-sh /bin/sh" \
    "$(on_terminal 'send:echo $0 $SHELL; exit\n' -- "$VSHMEM_BIN" shell -e SHELL=/no/such/shell vm0)"

# What runs commands on this kernel is given its channel as standard input.
code "an agent ends whose host is gone before it has said anything" 0 timeout 5 /usr/bin/python3 -c '
import socket, subprocess, sys
host, channel = socket.socketpair()
agent = subprocess.Popen(["vshmem-commands"], executable=sys.argv[1], stdin=channel)
channel.close()
host.close()
agent.wait()' "$VSHMEM_BIN"
