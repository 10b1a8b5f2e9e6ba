#!/bin/bash
# stress-ng: its System V stressors, which check what they read back.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need stress-ng stress-ng
needs_sysv stress-ng --quiet --sem-sysv 1 --sem-sysv-ops 10

# stressor NAME INSTANCES OPTION...: one stressor for three seconds.
stressor() {
    local name=$1 instances=$2
    shift 2
    "${on_vshmem[@]}" stress-ng --"$name" "$instances" --timeout 3 --verify --metrics-brief "$@" >"$name.log" 2>&1 || {
        cat "$name.log"
        fail "stress-ng --$name $*"
    }
    if grep -E 'fail:|error:|skipped stressor' "$name.log"; then
        fail "stress-ng --$name $* complained"
    fi
    local operations
    operations=$(awk -v name="$name" '$4 == name {print $5; exit}' "$name.log")
    [ "${operations:-0}" -gt 0 ] || fail "stress-ng --$name $* did nothing"
    done+="$name $operations, "
}

done=
stressor shm-sysv 2
stressor sem-sysv 2
stressor msg 2
stressor msg 2 --msg-types 10 --msg-bytes 1024
stressor switch 2 --switch-method sem-sysv
nothing_left || fail "constructs are left: $(constructs)"
echo "operations: ${done%, }"
