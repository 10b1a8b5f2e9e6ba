# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# Machines that are killed, one or some at once, while processes in them, in others and on the host work in
# one pool; each time the accounts must be right (storm.c). MACHINE_KILLS (4) says how many; between them the
# back end and a process of the host are killed, and machines are paused. A death, the boot after it and a
# look at the accounts take some seconds on a quiet machine of two cores, and 20 on a busy one.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}s
kills=${MACHINE_KILLS:-4}

cc -std=gnu17 -O1 -Wall -Wextra -o "$work/storm" "$programs/storm.c" || exit 1
if ! LIMIT=300 vshmem up -n 3 --no-net --doorbell --pool-size 64M >"$work/up" 2>&1; then
    failed "three machines come up" "$(cat "$work/up")"
    exit 1
fi
storm() { # storm WORD...: a process of the host itself, so that it is what is killed
    exec env LD_PRELOAD="$VSHMEM_LIB" VSHMEM_POOL="cluster.$VSHMEM_CLUSTER" "$work/storm" "$@"
}

# The life of each place: of the machines, and the last of the host.
lives=(0 0 0 0)
workers=(0 0 0 0)
next=0
begin_life() { # begin_life PLACE
    lives[$1]=$next
    if [ "$1" -lt 3 ]; then
        LIMIT=100000 vshmem run --vm "vm$1" -n 1 --no-prefix -- "$work/storm" work $next >"$work/life.$1" \
            2>&1 &
    else
        storm work $next >"$work/life.$1" 2>&1 &
    fi
    workers[$1]=$!
    next=$((next + 1))
    # Who boots comes first, or most of the time goes by in boots.
    if [ "$1" -lt 3 ]; then
        # shellcheck disable=SC2046 # several threads
        renice -n 19 -p $(ls "/proc/$(pid_of "vm$1")/task") >"$work/out" 2>&1
    else
        renice -n 19 -p "${workers[3]}" >"$work/out" 2>&1
    fi
}
look() { # look WHEN: only what is wrong is said; what is right is counted
    if timeout -k 1 $((400 * slow)) bash -c "$(declare -f storm); storm look ${lives[*]}" >"$work/looked" \
        2>&1; then
        return 0
    fi
    failed "the accounts are right $1" "$(tail -n 3 "$work/looked")" \
        "$(tail -n 2 "$work"/life.* "$work/received")"
    vshmem check "cluster.$VSHMEM_CLUSTER"
    return 1
}
export VSHMEM_LIB work

end_machine() { # end_machine PLACE HOW
    local pid i
    pid=$(pid_of "vm$1")
    case $2 in
    0) kill -KILL "$pid" ;;
    1)
        LIMIT=20 vshmem exec -n -u root "vm$1" -- sh -c 'echo c >/proc/sysrq-trigger' >"$work/out" 2>&1
        for ((i = 0; i < 200; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        ;;
    2)
        kill -STOP "$pid"
        sleep 2
        kill -KILL "$pid"
        ;;
    *) ;; # vshmem restart ends it
    esac
}

(storm begin)
(storm receive) >"$work/received" 2>&1 &
receiver=$!
for place in 0 1 2 3; do begin_life $place; done
# So many deaths the accounts were right after.
looks=-1
look "before anybody dies" && looks=0
began=$SECONDS
dead=0
round=0
told=0
counts=(1 2 2 2 3 3 3 3 3)
while [ "$dead" -lt "$kills" ]; do
    # One, two or, mostly, all of them at once, for together they boot faster; the rest works on.
    mapfile -t places < <(shuf -i 0-2)
    count=${counts[RANDOM % 9]}
    [ $((dead + count)) -le "$kills" ] || count=$((kills - dead))
    sleep "0.$((RANDOM % 10))"
    ends=()
    for place in "${places[@]:0:count}"; do
        end_machine "$place" $((dead % 4)) &
        ends+=($!)
        dead=$((dead + 1))
    done
    wait "${ends[@]}"
    case $((round % 3)) in
    0) kill -KILL "$(back_end)" ;;
    1)
        kill -KILL "${workers[3]}"
        wait "${workers[3]}" 2>/dev/null
        begin_life 3
        ;;
    *)
        # Another machine, if there is one, is away for a while, with whatever it is in the middle of.
        if [ "$count" -lt 3 ]; then
            away=$(pid_of "vm${places[2]}")
            kill -STOP "$away"
            sleep "$((RANDOM % 4))"
            kill -CONT "$away"
        fi
        ;;
    esac
    round=$((round + 1))
    names=$(printf 'vm%s ' "${places[@]:0:count}")
    # shellcheck disable=SC2086 # several names
    if ! LIMIT=300 vshmem restart -q --timeout $((120 * slow)) $names >"$work/out" 2>&1; then
        failed "${names}come back" "$(cat "$work/out")"
        break
    fi
    for place in "${places[@]:0:count}"; do
        wait "${workers[place]}" 2>/dev/null
        begin_life "$place"
    done
    look "after $dead deaths (the last: $names)" || break
    looks=$dead
    # Ten lines for the longest storms.
    if [ "$kills" -gt 100 ] && [ "$looks" -ge $((told + kills / 10)) ]; then
        told=$looks
        echo "        right after $looks deaths, $((SECONDS - began)) s: $(cat "$work/looked")"
    fi
done
seconds=$((SECONDS - began))
[ "$looks" -lt "$kills" ] ||
    passed "the accounts were right after $round times that machines died, $kills in all: $(cat \
    "$work/looked")"
echo "        $seconds s for $looks machines to die, to boot and to be looked at"

# Paused for longer than waiters trust the owner of a lock, and than the back end's silence may last: in the
# longer storms, since the case paused has that, too.
if [ "$looks" -ge "$kills" ] && [ "$kills" -ge 100 ]; then
    kill -STOP "$(pid_of vm1)"
    sleep $((25 * slow))
    kill -CONT "$(pid_of vm1)"
    look "after a machine was paused for 25 s" &&
        passed "they are after a machine was paused for 25 s: $(cat "$work/looked")"
fi

(storm stop)
for place in 0 1 2 3; do
    code=0
    wait "${workers[place]}" || code=$?
    equal "the work in place $place ends well" 0 "$code"
done
code "all is removed" 0 bash -c "$(declare -f storm); storm end"
wait "$receiver"
equal "the receiver had nothing to complain about" "" "$(cat "$work/received")"
mended=0
vshmem check "cluster.$VSHMEM_CLUSTER" >"$work/out" 2>&1 || mended=$?
if [ "$mended" -le 1 ]; then
    passed "each byte of the pool is accounted for"
else
    failed "each byte of the pool is accounted for" "$(cat "$work/out")"
fi
vshmem down
nothing_left "nothing is left of the storm"
export VSHMEM_CLUSTER=$cluster
