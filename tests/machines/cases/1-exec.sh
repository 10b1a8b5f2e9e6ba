# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# vshmem exec: real programs in real machines.
need_machines

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

marker=$work/run/marker
vshmem exec vm0 -- sh -c "mkdir -p '$work' /opt/x && echo private >/opt/x/file && echo private >/tmp/marker"
equal "what a machine writes stays in it" "private" "$(vshmem exec vm0 -- cat /opt/x/file /tmp/marker | sort -u)"
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

timeout -s KILL 1 "$VSHMEM_BIN" exec vm1 -- sh -c 'trap "" TERM INT HUP; setsid sleep 3141 & sleep 3142' >"$work/out" 2>&1
eventually "nothing survives a vshmem that is killed" vshmem exec vm1 -- sh -c '! pgrep -f "sleep 314[12]"'
