# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# vshmem doctor in a machine: bottlenecks that are planted there are found, cured, and brought back; and the
# idle daemon.
need_machines

clock=/sys/devices/system/clocksource/clocksource0
ksm=/sys/kernel/mm/ksm/run
in_vm() { vshmem exec -u root vm0 -- sh -c "$1"; }
# What is in force: the clock source, and whether equal pages are merged.
in_force() { in_vm "cat $clock/current_clocksource $ksm" | xargs; }
# Whatever may be set there, but for what the kernel counts.
all_set() {
    in_vm "find /proc/sys /sys/kernel/mm /sys/module/*/parameters /sys/devices/system -type f -perm -u+w \
        ! -name '*random*' ! -path '/proc/sys/kernel/random/*' ! -path '/proc/sys/fs/*' ! -name ns_last_pid \
        -exec grep -sH . {} +"
}
# What costs there, as doctor sees it; not what the host's load may change at any time.
costly() {
    vshmem doctor --vm vm0 --json | field '*sorted(f["id"] for f in told["findings"]
        if f["verdict"] == "costs" and f["id"] != "jitter")'
}

before=$(in_force)
others=$(costly)
equal "a machine as it comes has a fast clock and merges no pages" "" \
    "$(tr ' ' '\n' <<<"$others" | grep -xE 'clock-source|ksm')"
in_vm "echo acpi_pm >$clock/current_clocksource; echo 1 >$ksm"
planted=$(in_force)
equal "a slow clock and merging can be planted" "acpi_pm 1" "$planted"
expected=$(printf '%s\n' "$others" clock-source ksm | xargs -n 1 | sort | xargs)
all_set >"$work/set"
equal "doctor finds both, and nothing else" "$expected" "$(costly)"
equal "which changed nothing that can be set" "" "$(all_set | diff "$work/set" -)"

code "changes can be shown" 0 vshmem doctor --vm vm0 --fix --dry-run clock-source ksm
contains "each with what is there" "$clock/current_clocksource: acpi_pm becomes " "$(cat "$work/out")"
equal "which makes none" "$planted" "$(in_force)"
code "they are made" 0 vshmem doctor --vm vm0 --fix --yes clock-source ksm
equal "and measured: the clock is at least twice as fast" yes "$(
    sed -n 's/.*reading the clock: \([0-9.]*\) ns; now \([0-9.]*\) ns/\1 \2/p' "$work/out" |
        awk '$2 > 0 && $1 > 2 * $2 { print "yes" }'
)"
code "nothing costs any more" 0 vshmem doctor --vm vm0 clock-source ksm drift
code "another user of the machine can't undo it" 0 \
    vshmem exec -u 65534:65534 vm0 -- "$VSHMEM_BIN" doctor --undo
in_vm "echo 2 >$ksm"
code "what somebody else has set since is left alone" 1 vshmem doctor --vm vm0 --undo
equal "and the rest is as it was" "acpi_pm 2" "$(in_force)"
in_vm "echo 0 >$ksm"
code "when it is as it was left, it is undone" 0 vshmem doctor --vm vm0 --undo
equal "and all is as it was" "$planted" "$(in_force)"
in_vm "echo ${before% *} >$clock/current_clocksource; echo ${before#* } >$ksm"

# The mount of pools, by the same way.
huge() { in_vm "findmnt -nro OPTIONS /dev/shm | tr , '\n' | grep -x 'huge=.*' || echo none"; }
were=$(huge)
in_vm 'mount -o remount,huge=never /dev/shm; mkdir -p /dev/shm/vshmem.0
    fallocate -l 65M /dev/shm/vshmem.0/planted'
code "pools in small pages are cured" 0 vshmem doctor --vm vm0 --fix --yes pool-huge-pages
equal "by an option of their mount" huge=within_size "$(huge)"
code "which is undone" 0 vshmem doctor --vm vm0 --undo
equal "and it has no such option" none "$(huge)"
[ "$were" = none ] || in_vm "mount -o remount,$were /dev/shm"
in_vm 'rm /dev/shm/vshmem.0/planted'

# The idle daemon: a process of the lowest class for each processor, which ends with it.
processes="cat /proc/[0-9]*/comm | grep -c ^vshmem-idle/"
said=$(in_vm "'$VSHMEM_BIN' doctor --daemon idle --json >/tmp/idle & daemon=\$!
    while [ \"\$($processes)\" -lt \$(nproc) ]; do sleep 0.1; done; sleep 1.5
    ps -eo cls,comm | awk '/vshmem-idle/ { print \$1 }' | sort -u
    kill \$daemon; wait \$daemon; echo \$? \$($processes)")
equal "the daemon's processes are of the lowest class, and end with it" "IDL 0 0" "$(xargs <<<"$said")"
in_vm "head -n 1 /tmp/idle" >"$work/idle"
in_shape_of() { /usr/bin/python3 "$MACHINES_ROOT/tests/schema.py" "$1" <"$work/idle"; }
code "it says how it stands" 0 in_shape_of doctor-daemon
equal "of each processor" "$(in_vm nproc)" "$(field 'len(told["processors"])' <"$work/idle")"
"$VSHMEM_BIN" doctor --vm vm0 --daemon idle --prove --json >"$work/idle" 2>"$work/out"
code "what it gains is measured" 0 in_shape_of doctor-proof
equal "beside how processors idle now" "as it is idle processes" \
    "$(field '*[one["name"] for one in told["contenders"] if one["late"]["median"] > 0]' <"$work/idle")"

# On the host: two virtual processors that are bound to one core. Other machines may run here, too.
first=$(processor_of vm0) second=$(processor_of vm1)
were=$(taskset -pc "$first" | sed "s/.*: //")
other=$(taskset -pc "$second" | sed "s/.*: //")
core=${other%%[-,]*}
taskset -pc "$core" "$first" >/dev/null && taskset -pc "$core" "$second" >/dev/null
why=$(vshmem doctor --json shared-cores | field 'told["findings"][0]["why"]')
contains "doctor on the host names one of two that share a core" \
    "vshmem-$VSHMEM_CLUSTER-vm0 ($(pid_of vm0))" "$why"
contains "and the other one" "vshmem-$VSHMEM_CLUSTER-vm1 ($(pid_of vm1))" "$why"
# There each machine's idle daemon takes from the other one.
"$VSHMEM_BIN" doctor --vm vm0,vm1 --daemon idle >"$work/idle" 2>&1 &
daemon=$!
stops() { grep -Eq "^$1: .*left to idle: something outside took [0-9]+ %.*; another try" "$work/idle"; }
both_stop() { stops vm0 && stops vm1; }
eventually "idle daemons whose processors share a core leave it" both_stop
kill -TERM "$daemon"
wait "$daemon"
equal "and end with the command" "0 0" "$(in_vm "$processes") $(vshmem exec vm1 -- sh -c "$processes")"
taskset -pc "$were" "$first" >/dev/null && taskset -pc "$other" "$second" >/dev/null

# What a machine is shown of its processors, beside how they are bound: a QEMU that has not begun to run.
bind_two() { # bind_two THREADS: starts it with two processors, so many to a core, bound to two of the host
    qemu-system-x86_64 -S -name smt,debug-threads=on -nodefaults -display none -accel tcg -m 64 \
        -cpu Skylake-Server -smp "2,threads=$1" -qmp "unix:$work/smt.sock,server=on,wait=off" 2>"$work/out" &
    smt=$!
    eventually "a machine's monitor listens" test -S "$work/smt.sock"
    local index=0 core
    for core in "${two[@]}"; do
        taskset -pc "$core" \
            "$(grep -l "^CPU $index/" /proc/$smt/task/*/comm | cut -d / -f 5)" >/dev/null
        index=$((index + 1))
    done
}
as_shown() { # as_shown: what doctor says of that machine
    vshmem doctor --json guest-siblings >"$work/smt.json"
    field 'told["findings"][0]["verdict"] if "unknown" == told["findings"][0]["verdict"] else
        "wrong" if "smt ('$smt'): CPU 0/TCG and CPU 1/TCG are" in told["findings"][0]["why"] else "right"' \
        <"$work/smt.json"
}
mapfile -t two < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2], sep="\n")')
if [ ${#two[@]} -eq 2 ]; then
    cores=$(cat "/sys/devices/system/cpu/cpu${two[0]}/topology/thread_siblings_list" \
        "/sys/devices/system/cpu/cpu${two[1]}/topology/thread_siblings_list" | sort -u | wc -l)
    for threads in 1 2; do
        bind_two "$threads"
        equal "$threads threads to a core, on $cores of the host, are judged" \
            "$([ $((threads * cores)) -eq 2 ] && echo right || echo wrong)" "$(as_shown)"
        [ "$threads" -eq 1 ] || equal "by what QEMU's monitor says" "CPU 0/TCG + CPU 1/TCG" \
            "$(field '*[it["is"] for it in told["findings"][0]["evidence"]
                if it["of"] == "smt ('$smt'), siblings that it is shown"]' <"$work/smt.json")"
        kill "$smt"
        wait "$smt"
    done
    bind_two 2
    # Somebody else talks to it.
    python3 -c 'import socket, sys, time; it = socket.socket(socket.AF_UNIX); it.connect(sys.argv[1])
print(it.recv(1), flush=True); time.sleep(60)' "$work/smt.sock" >"$work/talks" &
    other=$!
    eventually "somebody talks to the monitor" test -s "$work/talks"
    equal "while it serves another one, nobody knows" unknown "$(as_shown)"
    contains "and why is said" "does not answer" "$(cat "$work/smt.json")"
    kill "$other" "$smt"
    wait "$other" "$smt"
else
    echo "skip    siblings in a machine: there is one processor"
fi

# Huge pages, in a machine with enough memory for the kernel to have them on.
thp=/sys/kernel/mm/transparent_hugepage/enabled
large=$VSHMEM_CLUSTER-large
if ! LIMIT=300 vshmem up -c "$large" -n 1 --memory 640M --no-net >"$work/up" 2>&1; then
    failed "a larger machine comes up" "$(cat "$work/up")"
    exit 1
fi
in_large() { vshmem exec -c "$large" -u root vm0 -- sh -c "$1"; }
in_force() { in_large "sed 's/.*\[\(.*\)\].*/\1/' $thp"; }
costly() {
    vshmem doctor -c "$large" --vm vm0 --json | field '*sorted(f["id"] for f in told["findings"]
        if f["verdict"] == "costs" and f["id"] != "jitter")'
}
# Nanoseconds for 4 KiB of new memory that asks for huge pages; the fastest of three counts, since others run.
touching() {
    local turn
    for turn in 1 2 3; do
        vshmem doctor -c "$large" --vm vm0 --json huge-pages |
            field "told['findings'][0]['measured'][1]['value'], $turn"
    done | sort -n | head -n 1 | cut -d ' ' -f 1
}
is_near() { awk "BEGIN { exit !($(touching) <= 1.1 * $whole) }"; }
is_far() { awk "BEGIN { exit !($(touching) > 2 * $whole) }"; }
in_large "echo madvise >$thp"
others=$(costly)
whole=$(touching)
in_large "echo never >$thp"
expected=$(printf '%s\n' "$others" huge-pages | xargs -n 1 | sort | xargs)
equal "doctor finds that no program gets a huge page, and nothing else" "$expected" "$(costly)"
shows=no
! is_far || shows=yes
echo "        it shows in what touching memory takes: $shows ($whole ns without it)"
code "that is cured" 0 vshmem doctor -c "$large" --vm vm0 --fix --yes huge-pages
equal "by what programs ask for" madvise "$(in_force)"
measured=$(sed -n 's/^huge-pages: touching .*: \([0-9.]*\) ns; now \([0-9.]*\) ns$/\1 \2/p' "$work/out")
equal "both are measured again" 2 "$(wc -l <<<"$measured")"
equal "and it is called unproven where neither takes less than before" \
    "$(awk '$2 < 0.8 * $1 { less = 1 } END { print less ? "" : "unproven" }' <<<"$measured")" \
    "$(grep -ow unproven "$work/out")"
[ "$shows" = no ] || WITHIN=90 eventually "touching memory takes what it took, by a tenth" is_near
code "and undone" 0 vshmem doctor -c "$large" --vm vm0 --undo
equal "so that no program gets one" never "$(in_force)"
[ "$shows" = no ] || WITHIN=90 eventually "which shows again" is_far
vshmem down -c "$large" >"$work/out" 2>&1

# The same machine with a poor model of a processor, of which QEMU is told last.
mkdir "$work/poor"
cat >"$work/poor/qemu-system-x86_64" <<END
#!/bin/sh
case " \$* " in *" -accel "*) set -- "\$@" -cpu qemu64 ;; esac
exec $(command -v qemu-system-x86_64) "\$@"
END
chmod 755 "$work/poor/qemu-system-x86_64"
if ! PATH=$work/poor:$PATH LIMIT=300 vshmem up -c "$large" -n 1 --memory 640M --no-net >"$work/up" 2>&1; then
    failed "a machine with a poor model of a processor comes up" "$(cat "$work/up")"
    exit 1
fi
in_large "echo madvise >$thp"
expected=$(printf '%s\n' "$others" vector-instructions | xargs -n 1 | sort | xargs)
equal "doctor finds that its processor lacks vector instructions, and nothing else" "$expected" "$(costly)"
code "which only another model cures" 1 vshmem doctor -c "$large" --vm vm0 vector-instructions
contains "when the machine is started anew" "(needs a restart of the machine)" "$(cat "$work/out")"
vshmem down -c "$large" >"$work/out" 2>&1
