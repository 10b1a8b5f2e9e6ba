#!/bin/sh
# profile.sh COMMAND...: runs it, and prints where the system's processors were meanwhile:
#
#   profile NANOSECONDS user=PERCENT kernel=PERCENT idle=PERCENT steal=PERCENT [cycles=N ...]
#
# The counts of the processor are there where perf can count, each that can be had: cycles, what missed the
# last cache, the second one (by Intel's name and by AMD's) and the TLB of instructions.
set -eu

events=
for event in cycles cache-misses l2_rqsts.miss l2_cache_req_stat.ic_dc_miss_in_l2 iTLB-load-misses; do
    ! perf stat -x, -e "$event" true 2>&1 | grep -q '^[0-9]' || events=${events:+$events,}$event
done
counts=
if [ -n "$events" ]; then
    counts=$(mktemp)
    trap 'rm -f "$counts"' EXIT
    set -- perf stat -x, -e "$events" -o "$counts" -- "$@"
fi
read -r _ user nice system idle wait irq soft steal _ </proc/stat
begun=$(date +%s%N)
status=0
"$@" || status=$?
took=$(($(date +%s%N) - begun))
read -r _ user2 nice2 system2 idle2 wait2 irq2 soft2 steal2 _ </proc/stat
user=$((user2 - user + nice2 - nice)) idle=$((idle2 - idle + wait2 - wait))
kernel=$((system2 - system + irq2 - irq + soft2 - soft)) steal=$((steal2 - steal))
all=$((user + kernel + idle + steal))
[ "$all" -gt 0 ] || all=1
line="profile $took"
for part in user kernel idle steal; do
    eval "line=\"\$line $part=\$(((1000 * \$$part / all + 5) / 10))\""
done
[ -z "$counts" ] || line="$line $(awk -F , '/^[0-9]/ { printf "%s=%s ", $3, $1 }' "$counts")"
echo "$line"
exit "$status"
