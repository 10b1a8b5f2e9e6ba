# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # machines expand what is quoted; lib.sh sets it
# The root of machines as a disk (--root erofs): machines that boot and that thaw have it, what is in it is
# what the host had, its server comes back when it is killed, and nothing of it stays.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}r
VSHMEM_TEST_UP=${VSHMEM_TEST_UP:-}
VSHMEM_TEST_UP=${VSHMEM_TEST_UP/--root erofs/}
# What a test can change of the host's system. Only root can make it.
ours=/opt/vshmem-test-$$
clean_up() {
    vshmem down >/dev/null 2>&1 || true
    [ "$(id -u)" -ne 0 ] || rm -rf "${ours:?}"
}
directory=$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/.root
keeper() { of_record 'told["root"]["process"]["pid"]'; }
server() { pgrep -P "$(keeper)"; }
gone() { ! pgrep -f "^vshmem-sandbox vshmem-$VSHMEM_CLUSTER-root" >/dev/null; }
up() { # up WHAT OPTION...
    local what="$1"
    shift
    if ! LIMIT=300 vshmem up --root erofs --driver none --timeout 250 "$@" >"$work/up" 2>&1; then
        failed "$what" "$(cat "$work/up")"
        exit 1
    fi
    passed "$what"
}
changes() { [ "$(id -u)" -eq 0 ]; }

up "a machine has its root as a disk" -n 1
if grep -q "not as a disk" "$work/up"; then
    echo "skip    the root as a disk: $(sed -n 's/.*not as a disk: //p' "$work/up")"
    vshmem down
    exit 0
fi
vshmem down
if changes; then
    mkdir -p "$ours/closed"
    printf text >"$ours/file"
    for name in changed replaced private; do printf '%s as it was' "$name" >"$ours/$name"; done
    head -c 64M /dev/urandom >"$ours/large"
    chmod 600 "$ours/private"
    chmod 700 "$ours/closed"
    printf text >"$ours/closed/in"
    install -m 4755 /bin/true "$ours/set"
    ln "$ours/file" "$ours/second"
    # What changes within a tick of the clock after the walk is not told by a stamp.
    sleep 0.1
fi

# looks WHAT: the system's files, in vm0 as here
looks() {
    local list='stat -c "%n %F %a %u %g %s %y" /bin /lib /etc/passwd /usr/bin/*
        stat -c "%n %a %u" /usr/share /opt'
    vshmem exec vm0 -- sh -c "$list" >"$work/theirs"
    sh -c "$list" >"$work/own"
    holds "$1: it sees $(wc -l <"$work/theirs") files as they are here" cmp "$work/own" "$work/theirs"
    equal "$1: programs are the same" "$(cat /usr/bin/[a-d]* 2>/dev/null | md5sum)" \
        "$(vshmem exec vm0 -- sh -c 'cat /usr/bin/[a-d]* 2>/dev/null | md5sum')"
    contains "$1: its root is the disk, and what is shared lies below" "lowerdir=/disk:/lower" \
        "$(vshmem exec vm0 -- grep ' / overlay' /proc/mounts)"
    equal "$1: what not everybody can read of /etc is empty" 0 \
        "$(vshmem exec -u root vm0 -- stat -c %s /etc/shadow)"
    equal "$1: what it may not see is not there" "" \
        "$(vshmem exec -u root vm0 -- ls -A /home /root /var/lib /boot 2>/dev/null | grep -v : | grep .)"
    echo one >"$work/live"
    equal "$1: what is shared is as it is" one "$(vshmem exec vm0 -- cat "$work/live")"
    # A file that is as long as it was is only seen to be another one a second later (9p's qid.version).
    echo three >"$work/live"
    equal "$1: from one command to the next" three "$(vshmem exec vm0 -- cat "$work/live")"
    equal "$1: it can write to it for itself" "mine mine" \
        "$(vshmem exec -u root vm0 -- sh -c \
            "echo mine | tee $work/live >/usr/bin/new; cat $work/live /usr/bin/new" 2>/dev/null |
            paste -s -d ' ')"
    equal "$1: and the host has its own" "three" "$(cat "$work/live")"
    changes || return 0
    equal "$1: modes and names are those of the host" "4755 0 1 644 0 2" \
        "$(vshmem exec vm0 -- stat -c '%a %u %h' "$ours/set" "$ours/second" | paste -s -d ' ')"
    equal "$1: what root alone can read is not there" "" \
        "$(vshmem exec -u root vm0 -- sh -c "ls $ours/private $ours/closed/* 2>/dev/null")"
}

up "a machine boots from a disk" -n 1 --cold
contains "up says so" "on a disk" "$(cat "$work/up")"
looks "booted"
equal "nobody else can reach the server" 700 "$(stat -c %a "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER")"
for space in pid net mnt; do
    holds "it has a name space of its own: $space" \
        test "$(readlink "/proc/$(server)/ns/$space")" != "$(readlink "/proc/self/ns/$space")"
done
equal "it has no right of root's" 0000000000000000 "$(awk '/CapEff/ { print $2 }' "/proc/$(server)/status")"
vshmem down
nothing_left "nothing is left of it"
holds "nor of its server" gone

up "machines that thaw have it" -n 2
looks "thawed"
equal "they share one server" 1 "$(pgrep -c -f "^vshmem-sandbox vshmem-$VSHMEM_CLUSTER-root")"

# A server that is killed comes back, and a machine that reads meanwhile does not notice.
if changes; then
    LIMIT=200 vshmem exec vm1 -- sh -c \
        "{ dd bs=1M count=8 2>/dev/null; sleep 4; cat; } <$ours/large | md5sum" >"$work/sum" &
    reader=$!
    sleep 2
    old=$(server)
    kill -KILL "$old"
    wait "$reader"
    equal "a file is read while the server is killed" "$(md5sum <"$ours/large")" "$(cat "$work/sum")"
    eventually "there is a new server" eval '[ -n "$(server)" ] && [ "$(server)" != "$old" ]'
fi
old=$(server)
kill -KILL "$(keeper)"
eventually "its keeper takes it along" eval '! kill -0 "$old" 2>/dev/null'
code "repair starts it again" 0 vshmem repair
equal "a program that was never read is there" "$(md5sum </usr/bin/perl)" \
    "$(vshmem exec vm0 -- sh -c 'md5sum </usr/bin/perl')"

# What has changed is an error, and no mixture.
if changes; then
    printf 'changed as it is!' >"$ours/changed"
    printf 'replaced as it is' >"$ours/new"
    mv "$ours/new" "$ours/replaced"
    for name in changed replaced; do
        contains "a file that was $name gives an error" "nput/output error" \
            "$(vshmem exec vm0 -- cat "$ours/$name" 2>&1)"
    done
    contains "the log names it" "$ours/changed" "$(cat "$directory"/*.log)"
    equal "a file that was not is what it was" text "$(vshmem exec vm0 -- cat "$ours/file")"
    code "one machine is restarted" 0 vshmem restart vm0
    contains "it has what the other one has" "nput/output error" \
        "$(vshmem exec vm0 -- cat "$ours/changed" 2>&1)"
    code "all are restarted together" 0 vshmem restart vm0 vm1
    equal "then they have what the host has" "changed as it is!" "$(vshmem exec vm1 -- cat "$ours/changed")"
fi
for name in vm0 vm1; do kill -KILL "$(pid_of "$name")"; done
patience=90 eventually "a server without machines ends" gone
code "they are repaired, with a new one" 0 vshmem repair
equal "which they read from" "$(md5sum </usr/bin/perl)" "$(vshmem exec vm0 -- sh -c 'md5sum </usr/bin/perl')"
vshmem down
nothing_left "nothing is left"
holds "nor of the server" gone

# A command that is killed before its machines are up leaves no server.
"$VSHMEM_BIN" up -n 1 --root erofs --driver none --cold >"$work/up" 2>&1 &
upper=$!
until ! gone; do
    kill -0 "$upper" 2>/dev/null || break
    sleep 0.02
done
kill -KILL "$upper" 2>/dev/null
wait "$upper" 2>/dev/null
patience=90 eventually "a command that was killed leaves no server" gone
vshmem down >/dev/null 2>&1
nothing_left "and nothing else, once it was ended"

LIMIT=300 vshmem up -n 1 --driver none >"$work/up" 2>&1
contains "machines have no disk unless it is asked for" "lowerdir=/lower," \
    "$(vshmem exec vm0 -- grep ' / overlay' /proc/mounts)"
vshmem down
export VSHMEM_CLUSTER=$cluster
