#!/bin/sh
# Records what vshmem doctor reads of this system, as the tests take it:
#
#   record.sh [PID SOCKET]... >FILE
#
# With the process and the monitor's socket (QMP) of a machine's QEMU, also what the kernel, KVM and QEMU say
# of that.
#
# Look through it before you give it away: it has names of devices and of machines.
set -eu

show() { # show FILE...: those that can be read
    for file; do
        if text=$(cat "$file" 2>/dev/null) && [ -n "$text" ]; then
            printf '== %s\n%s\n' "${file#/}" "$text"
        fi
    done
}

link() { # link FILE...
    for file; do
        [ ! -L "$file" ] || printf -- '-> %s %s\n' "${file#/}" "$(readlink "$file")"
    done
}

echo "Recorded on Linux $(uname -r), $(date -u +%F)."
printf '== proc/cpuinfo\n'
sed '/^$/q' /proc/cpuinfo | grep -E '^(processor|vendor_id|flags)'
printf '== proc/meminfo\n'
grep -E '^(MemTotal|AnonHugePages|Shmem.*|Swap.*|HugePages_.*):' /proc/meminfo
printf '== proc/vmstat\n'
grep -E '^(pswp|balloon_|numa_hint_faults )' /proc/vmstat
printf '== proc/self/mounts\n'
grep ' /dev/shm ' /proc/self/mounts || true
printf '== proc/stat\n'
head -n 1 /proc/stat
show /proc/sys/kernel/osrelease /proc/cmdline /sys/devices/system/cpu/cpuidle/available_governors \
    /sys/devices/system/cpu/isolated /sys/devices/system/cpu/nohz_full \
    /sys/devices/system/cpu/vulnerabilities/itlb_multihit /sys/fs/cgroup/cpuset.cpus.isolated \
    /sys/module/kvm/parameters/nx_huge_pages /sys/module/kvm/parameters/tdp_mmu \
    /sys/module/kvm_intel/parameters/ept /sys/module/kvm_amd/parameters/npt /sys/kernel/debug/kvm/pages_*
show /proc/uptime /proc/interrupts /proc/sys/kernel/numa_balancing /sys/devices/system/cpu/online \
    /sys/devices/system/clocksource/clocksource0/*_clocksource /sys/devices/system/cpu/cpuidle/current_* \
    /sys/devices/system/cpu/cpu*/topology/thread_siblings_list \
    /sys/devices/system/cpu/vulnerabilities/meltdown \
    /sys/devices/system/cpu/cpu*/cpufreq/scaling_driver \
    /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor \
    /sys/devices/system/node/online /sys/devices/system/node/node*/cpulist \
    /sys/kernel/mm/transparent_hugepage/*enabled /sys/kernel/mm/ksm/run /sys/kernel/mm/ksm/pages_sharing \
    /sys/kernel/mm/ksm/full_scans /sys/module/haltpoll/parameters/guest_halt_poll_ns \
    /sys/module/kvm/parameters/halt_poll_ns \
    /proc/irq/*/effective_affinity_list /proc/irq/*/smp_affinity_list \
    /sys/bus/pci/devices/*/vendor /sys/bus/pci/devices/*/device /sys/class/net/*/device/features \
    /sys/class/net/*/statistics/[rt]x_packets /sys/class/net/*/queues/rx-*/rps_cpus \
    /sys/block/vd*/stat /sys/block/vd*/mq/*/nr_tags
link /sys/bus/pci/devices/*/driver /sys/class/net/*/device/driver

machine() { # machine PID SOCKET
    show "/proc/$1/comm" "/proc/$1/cgroup" "/proc/$1/numa_maps" "/proc/$1"/task/*/comm \
        "/proc/$1"/task/*/stat "/proc/$1"/task/*/schedstat "/sys/kernel/debug/kvm/$1"-*/exits \
        "/sys/kernel/debug/kvm/$1"-*/halt_exits "/sys/kernel/debug/kvm/$1"-*/pages_*
    for file in "/proc/$1"/task/*/status; do
        printf '== %s\n' "${file#/}"
        grep '^Cpus_allowed_list:' "$file"
    done
    ask="$(dirname "$0")/../../../../../tests/machines/programs/qmp.py"
    printf '== qmp/%s/query-cpus-fast\n' "$1"
    python3 "$ask" "$2" query-cpus-fast
    cpu=$(python3 "$ask" "$2" query-cpus-fast | grep -o '"qom-path": "[^"]*"' | head -n 1 | cut -d \" -f 4)
    for property in vendor topoext; do
        printf '== qmp/%s%s/%s\n' "$1" "$cpu" "$property"
        python3 "$ask" "$2" "{\"execute\": \"qom-get\",
            \"arguments\": {\"path\": \"$cpu\", \"property\": \"$property\"}}"
    done
}

while [ $# -gt 1 ]; do
    machine "$1" "$2"
    shift 2
done
