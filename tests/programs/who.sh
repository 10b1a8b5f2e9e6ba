#!/bin/bash
# Processes of containers, which may have the same pids, are told apart by vshmem ipcs.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_command ipcs
need unshare util-linux
need hostname hostname
apart=(unshare --user --map-root-user --mount --pid --uts --fork --kill-child --mount-proc)
"${apart[@]}" true 2>err.log || skip "namespaces of a user's own are not allowed here: $(cat err.log)"

# container NAME: its first process waits
container() {
    # shellcheck disable=SC2016 # for the inner shell
    exec "${apart[@]}" sh -c 'hostname "$1" && shift && exec "$@"' sh "$1" "${on_vshmem[@]}" perl \
        "$here/perl/wait.pl"
}
waiting() { "$vshmem" ipcs --waiters --pool "$pool" |
    sed -n '/^Waiting threads/,$s/^set  *[0-9]* *\([^ ]*\) .*/\1/p' | sort; }
waits() { [ "$(waiting)" = "$(printf '%s\n' "$@" | sort)" ]; }

"${on_vshmem[@]}" perl "$here/perl/wait.pl" &
alone=$!
eventually "a process that waits" waits "$alone@$(hostname)"
(container one) &
one=$!
eventually "a container's process" waits 1@one "$alone@$(hostname)"
"$vshmem" ipcs --pool "$pool" | grep -q ' 1@one ' ||
    fail "it is not told who sent last: $("$vshmem" ipcs --pool "$pool")"
(container two) &
two=$!
eventually "those of two containers" waits 1@one 1@two "$alone@$(hostname)"
"$vshmem" ipcs --pool "$pool" | grep -q " 1@two " ||
    fail "it is not told which of two sent last: $("$vshmem" ipcs --pool "$pool")"

"$vshmem" ipcs --pool "$pool" --json >ipcs.log
has_shape ipcs ipcs.log
/usr/bin/python3 "$here/told_apart.py" ipcs.log "$alone" || fail "$(cat ipcs.log)"

# From another container neither can be seen: they are told apart all the same.
# shellcheck disable=SC2016 # for the inner shell
"${apart[@]}" "$vshmem" ipcs --waiters --pool "$pool" >inside.log
[ "$(sed -n '/^Waiting threads/,$p' inside.log | grep -o ' 1@[^ ]*#[0-9a-f]* ' | sort -u | wc -l)" = 2 ] ||
    fail "seen from a container: $(cat inside.log)"

kill -KILL "$one" "$two"
# Of a container that is gone a number is left.
gone() { "$vshmem" ipcs --pool "$pool" | grep -q " 1@$(hostname)#[0-9a-f]* "; }
eventually "a container that is gone" gone
"$vshmem" ipcrm --pool "$pool" --all
wait
echo "two first processes of containers, and one of none"
