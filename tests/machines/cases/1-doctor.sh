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
