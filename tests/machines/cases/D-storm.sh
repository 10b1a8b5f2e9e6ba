# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# Machines that are killed while processes in them, in others and on the host work in one pool; after each death the accounts must be
# right (storm.c). MACHINE_KILLS (6) says how many; between them the back end and a process of the host are killed, and machines are paused.
# A death, the boot after it and a look at the accounts take some 20 seconds on two busy cores.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}s
kills=${MACHINE_KILLS:-6}

cc -std=gnu17 -O1 -Wall -Wextra -o "$work/storm" "$MACHINES_ROOT/tests/machines/storm.c" || exit 1
if ! LIMIT=300 vshmem up -n 3 --no-net --doorbell --pool-size 64M >"$work/up" 2>&1; then
    failed "three machines come up" "$(cat "$work/up")"
    exit 1
fi
record=$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/cluster.json
pid_of() { # pid_of PLACE
    python3 -c "import json; print(json.load(open('$record'))['machines'][$1]['qemu']['pid'])"
}
on_host() { # on_host WORD...: a process of the host itself, so that it is what is killed
    exec env LD_PRELOAD="$VSHMEM_LIB" VSHMEM_POOL="cluster.$VSHMEM_CLUSTER" "$work/storm" "$@"
}
back_end() { vshmem agent --status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])'; }

# The life of each place: of the machines, and the last of the host.
lives=(0 0 0 0)
workers=(0 0 0 0)
next=0
begin_life() { # begin_life PLACE
    lives[$1]=$next
    if [ "$1" -lt 3 ]; then
        LIMIT=100000 vshmem run --vm "vm$1" -n 1 --no-prefix -- "$work/storm" work $next >"$work/life.$1" 2>&1 &
    else
        on_host work $next >"$work/life.$1" 2>&1 &
    fi
    workers[$1]=$!
    next=$((next + 1))
}
look() { # look WHEN: only what is wrong is said; what is right is counted
    if LIMIT=400 timeout -k 1 400 bash -c "$(declare -f on_host); on_host look ${lives[*]}" >"$work/looked" 2>&1; then
        return 0
    fi
    failed "the accounts are right $1" "$(tail -n 3 "$work/looked")" "$(tail -n 2 "$work"/life.* "$work/received")"
    vshmem check "cluster.$VSHMEM_CLUSTER"
    return 1
}
export VSHMEM_LIB work

end_machine() { # end_machine PLACE HOW
    local pid i
    pid=$(pid_of "$1")
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

(on_host begin)
(on_host receive) >"$work/received" 2>&1 &
receiver=$!
for place in 0 1 2 3; do begin_life $place; done
looks=0
look "before anybody dies" && looks=1
began=$SECONDS
for ((kill = 0; kill < kills; kill++)); do
    place=$((RANDOM % 3))
    sleep "0.$((RANDOM % 10))"
    end_machine $place $((kill % 4))
    case $((kill % 3)) in
    0) kill -KILL "$(back_end)" ;;
    1)
        kill -KILL "${workers[3]}"
        wait "${workers[3]}" 2>/dev/null
        begin_life 3
        ;;
    *)
        # Another machine is away for a while, with whatever it is in the middle of.
        kill -STOP "$(pid_of $(((place + 1) % 3)))"
        sleep "$((RANDOM % 4))"
        kill -CONT "$(pid_of $(((place + 1) % 3)))"
        ;;
    esac
    if ! LIMIT=200 vshmem restart -q "vm$place" >"$work/out" 2>&1; then
        failed "vm$place comes back" "$(cat "$work/out")"
        break
    fi
    wait "${workers[place]}" 2>/dev/null
    begin_life $place
    look "after death $((kill + 1)) (vm$place)" || break
    looks=$((looks + 1))
done
seconds=$((SECONDS - began))
[ "$looks" -le "$kills" ] || passed "the accounts were right after each of $kills deaths of machines: $(cat "$work/looked")"
echo "        $seconds s for $kills machines to die, to boot and to be looked at"

# Paused for longer than anybody's patience with who holds a lock, and than the back end's silence may last.
if [ "$looks" -gt "$kills" ]; then
    kill -STOP "$(pid_of 1)"
    sleep 25
    kill -CONT "$(pid_of 1)"
    look "after a machine was paused for 25 s" && passed "they are after a machine was paused for 25 s: $(cat "$work/looked")"
fi

(on_host stop)
for place in 0 1 2 3; do
    code=0
    wait "${workers[place]}" || code=$?
    equal "the work in place $place ends well" 0 "$code"
done
code "all is removed" 0 bash -c "$(declare -f on_host); on_host end"
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
