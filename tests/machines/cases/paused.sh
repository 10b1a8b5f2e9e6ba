# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# A machine that is paused by QEMU's monitor, as for a snapshot or before a move, while others work in the
# same IPC objects (storm.c), and goes on after longer than anybody waits. Its QEMU runs on meanwhile, so
# unlike one that is stopped by a signal it takes doorbells.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}p

cc -std=gnu17 -O1 -Wall -Wextra -o "$work/storm" "$programs/storm.c" || exit 1
if ! LIMIT=300 vshmem up -n 2 --no-net --doorbell --pool-size 64M >"$work/up" 2>&1; then
    failed "two machines come up" "$(cat "$work/up")"
    exit 1
fi

# One that waits, and is served while its machine is paused.
vshmem run --vm vm1 -n 1 --no-prefix -- perl "$programs/wait_message.pl" >"$work/heard" 2>&1 &
waiter=$!
eventually "a process of a machine waits" grep -q waits "$work/heard"
"$VSHMEM_BIN" run --vm vm1 -n 1 --no-prefix -- sleep 1000 >"$work/given.up" 2>&1 &
given_up=$!

on_host "$work/storm" begin
LIMIT=1000 on_host "$work/storm" receive >"$work/received" 2>&1 &
receiver=$!
workers=()
for place in 0 1; do
    LIMIT=1000 vshmem run --vm "vm$place" -n 1 --no-prefix -- "$work/storm" work $place >"$work/life.$place" \
        2>&1 &
    workers+=($!)
done
LIMIT=1000 on_host "$work/storm" work 2 >"$work/life.2" 2>&1 &
workers+=($!)
look() { LIMIT=400 on_host "$work/storm" look 0 1 2 >"$work/looked" 2>&1; }
code "all work" 0 look
before=$(members_of "cluster.$VSHMEM_CLUSTER")

# How far the others have come, and how many calls a pause has ended: who needs a lock that the paused machine
# holds is told so.
pause() { # pause SECONDS COMMAND...: what is done meanwhile
    read -r refused first second <<<"$(on_host perl "$programs/steps.pl")"
    monitor vm1 stop >/dev/null
    "${@:2}"
    sleep $(($1 * slow))
    equal "it is paused" paused "$(monitor vm1 query-status | field 'told["status"]')"
    read -r refused_then first_then second_then <<<"$(on_host perl "$programs/steps.pl")"
    equal "the others get on, or are told what they wait for" yes "$(
        [ "$refused" != "$refused_then" ] || { [ "$first" != "$first_then" ] &&
            [ "$second" != "$second_then" ]; } && echo yes
    )"
    equal "the machine is not taken for dead" "$before" "$(members_of "cluster.$VSHMEM_CLUSTER")"
    monitor vm1 cont >/dev/null
}
serve() {
    on_host perl -e 'msgsnd(msgget(0x7070, 0), pack("l! a*", 1, "at last"), 0) or die "msgsnd: $!"'
    kill -TERM "$given_up"
}
pause 25 serve
code "all is right after a machine was paused for 25 s" 0 look
wait "$waiter" || failed "who waited in it ends well" "$(cat "$work/heard")"
equal "who waited in it has what it was sent" "waits at last" "$(tr '\n' ' ' <"$work/heard" | sed 's/ $//')"
ended=0
wait "$given_up" || ended=$?
equal "who does not want to wait for a paused machine need not" 143 "$ended"
contains "and is told why" "the machine does not answer" "$(cat "$work/given.up")"

kill_back_end() { kill -KILL "$(back_end)"; }
pause 5 kill_back_end
code "all is right after the back end was killed while a machine was paused" 0 look
for round in 1 2 3 4 5 6 7 8; do
    monitor vm1 stop >/dev/null
    sleep "0.$round"
    monitor vm1 cont >/dev/null
done
code "all is right after many short pauses: $(cat "$work/looked")" 0 look

on_host "$work/storm" stop
for place in 0 1 2; do
    ended=0
    wait "${workers[place]}" || ended=$?
    equal "the work in place $place ends well" 0 "$ended"
done

# In the middle of what has the pool's lock, which others need for shmat and shmdt.
on_host perl -e 'shmget(0x5e9, 4096, 01600) // die "shmget: $!"'
"$VSHMEM_BIN" run --vm vm1 -n 1 --no-prefix -- \
    perl -e 'my $id = shmget(0x5e9, 0, 0); 1 while shmread($id, my $byte, 0, 1)' &
taker=$!
mkfifo "$work/told"
LIMIT=1000 on_host perl "$programs/detach.pl" <"$work/told" >"$work/detached" 2>&1 &
detacher=$!
exec 5>"$work/told"
eventually "a segment is attached" grep -q attached "$work/detached"
is_stuck() {
    vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" --json 2>"$work/remark" >"$work/seen"
    grep -q "holds a lock and makes no progress" "$work/remark"
}
paused_with_the_lock() {
    monitor vm1 stop >/dev/null
    is_stuck && return
    monitor vm1 cont >/dev/null
    return 1
}
WITHIN=60 eventually "a machine is paused that has the pool's lock" paused_with_the_lock
contains "what lies in the pool is shown all the same" '"key": 1513' "$(cat "$work/seen")"
echo >&5
eventually "who detaches it meanwhile can" grep -q detached "$work/detached"
monitor vm1 cont >/dev/null
attached() {
    vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" --json |
        field '[s["attached"] for pool in told["pools"] for s in pool["segments"] if s["key"] == 0x5e9]'
}
kill -TERM "$taker"
wait "$taker"
is_detached() { [ "$(attached)" = "[0]" ]; }
eventually "that counts as soon as the lock is free" is_detached
echo >&5
exec 5>&-
wait "$detacher"
equal "nothing went wrong there" "attached detached" "$(tr '\n' ' ' <"$work/detached" | sed 's/ $//')"
on_host perl -e 'shmctl(shmget(0x5e9, 0, 0), 0, 0) or die "shmctl: $!"'

code "all is removed" 0 on_host "$work/storm" end
wait "$receiver"
equal "the receiver had nothing to complain about" "" "$(cat "$work/received")"
on_host perl -e 'msgctl(msgget(0x7070, 0), 0, 0) or die "msgctl: $!"'
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"
vshmem down
wait
nothing_left "nothing is left of machines that were paused"
export VSHMEM_CLUSTER=$cluster
