# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# System V IPC between machines, by programs that know nothing of Vshmem. A filter forbids them the kernel's
# calls.
need_machines

"${CC:-cc}" -O1 -o "$work/forbid" "$MACHINES_ROOT/tests/conformance/forbid.c"
filter=$work/forbid

equal "perl in one machine sends to python in the other" "vm1: 65536,vm1: 1000,vm1: 5," \
    "$(vshmem run --vm vm0 -- "$filter" perl "$common/send.pl" \
        : --vm vm1 -- "$filter" /usr/bin/python3 "$common/receive.py" 2>&1 | tr '\n' ',')"

equal "two machines take turns with semaphores and count in a segment" "vm0: 400" \
    "$(vshmem run --vm vm0 -- "$filter" perl "$common/turns.pl" 0 200 \
        : --vm vm1 -- "$filter" perl "$common/turns.pl" 1 200 2>&1)"

equal "what one machine's process leaves is undone for the other" "vm1: undone" \
    "$(vshmem run -- "$filter" perl "$programs/undo.pl" 2>&1)"

vshmem run --vm vm0 -- perl -e 'msgsnd(msgget(0x4444, 01600) // die, pack("l! a*", 1, "abc"), 0) or die;
    shmget(0x4444, 5000, 01640) // die'
vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" >"$work/host"
contains "the host sees what a machine made" "0x00004444" "$(cat "$work/host")"
contains "and which one made it" "@vm0" "$(cat "$work/host")"
contains "the other machine sees it too" "0x00004444" "$(vshmem exec vm1 -- "$VSHMEM_BIN" ipcs)"
equal "the machine's kernel has nothing" "1" "$(vshmem exec vm0 -- cat /proc/sysvipc/msg | wc -l)"
equal "a process on the host joins in" "abc" \
    "$(VSHMEM_POOL=cluster.$VSHMEM_CLUSTER vshmem run --local --no-prefix -- \
        perl -e 'msgrcv(msgget(0x4444, 0) // die, my $m, 10, 0, 0) or die; print substr($m, 8), "\n"')"
vshmem ipcrm --pool "cluster.$VSHMEM_CLUSTER" -Q 0x4444 -M 0x4444
equal "and what was made can be removed from there" "" \
    "$(vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" | grep 0x00004444)"

vshmem run --vm vm1 -n 1 --no-prefix -- perl "$programs/wait.pl" &
waiter=$!
waits() { vshmem ipcs --waiters --pool "cluster.$VSHMEM_CLUSTER" |
    grep -q '@vm1 .*alive .*semaphore 2 to let -4 be added'; }
eventually "the host sees who waits in a machine, and what for" waits
pid=$(vshmem exec vm1 -- pgrep -f wait.pl | head -1)
of_waiters='(w["process"]["kernel"], w["process"]["pid"], int(w["since"]))'
read -r kernel its_pid since <<<"$(vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" --json |
    field "*[x for p in told['pools'] for w in p['waiters'] for x in $of_waiters]")"
equal "with its pid there" "vm1 $pid" "$kernel $its_pid"
holds "and since when" test "$since" -le "$(date +%s)" -a "$since" -gt $(($(date +%s) - 60 * slow))
member='[m["member"] for c in told["clusters"] for m in c["machines"] if m["name"] == "vm1"][0]'
equal "vshmem ps counts it" "1 1" "$(vshmem ps --json |
    field "*[${member}[what] for what in ('processes', 'waiting')]")"
contains "vshmem top in the other machine shows it" "@vm1 " "$(vshmem exec vm0 -- "$VSHMEM_BIN" top --once)"
vshmem ipcrm --pool "cluster.$VSHMEM_CLUSTER" -S 0x6666
code "and it ends" 0 wait "$waiter"

code "a new segment is empty whoever had its memory before" 0 vshmem run -- "$filter" perl \
    "$programs/fresh.pl"

rule() { # rule VM WHAT [OPTION...]
    local vm=$1 what=$2
    shift 2
    vshmem run --vm "$vm" --no-prefix -u root -e VSHMEM_LOG=off "$@" -- perl "$programs/rule.pl" "$what" 2>&1
}
equal "a machine's root does not rule over what another machine made, but its owner may use it" \
    "make: yes,remove: Operation not permitted,look: yes,remove: yes," \
    "$({
        rule vm0 make
        rule vm1 remove
        rule vm1 look
        rule vm0 remove
    } | tr '\n' ',')"
equal "users of a machine may have other ids in the pool" \
    "make: yes,look: yes,look: Permission denied,remove: yes," \
    "$({
        rule vm0 make -e 'VSHMEM_UID_MAP=0 0 1,1000 70000 1'
        rule vm1 look -e 'VSHMEM_UID_MAP=0 0 1,1000 70000 1'
        rule vm1 look
        rule vm0 remove
    } | tr '\n' ',')"
