#!/bin/bash
# stress-ng: its System V stressors, which check what they read back.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need stress-ng stress-ng
needs_sysv stress-ng --quiet --sem-sysv 1 --sem-sysv-ops 10

# stressor NAME LEAST OPTION...: two instances of a stressor for three seconds, which must
# come to at least so many operations: a worker that was killed does not say so.
stressor() {
    local name=$1 least=$2
    shift 2
    "${on_vshmem[@]}" stress-ng --"$name" 2 --timeout 3 --verify --metrics-brief "$@" >"$name.log" 2>&1 || {
        cat "$name.log"
        fail "stress-ng --$name $*"
    }
    if grep -E 'fail:|error:|skipped stressor' "$name.log"; then
        fail "stress-ng --$name $* complained"
    fi
    local operations
    operations=$(awk -v name="$name" '$4 == name {print $5; exit}' "$name.log")
    [ "${operations:-0}" -ge "$least" ] ||
        fail "stress-ng --$name $* came to ${operations:-0} operations only"
    done+="$name $operations, "
}

done=
stressor shm-sysv 50
stressor sem-sysv 6000
stressor msg 10000
stressor msg 10000 --msg-types 10 --msg-bytes 1024
stressor switch 10000 --switch-method sem-sysv
nothing_left || fail "objects are left: $(objects)"
echo "operations: ${done%, }"
