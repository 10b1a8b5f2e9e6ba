# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# A machine sees what is shared with it. Its root looks for all else, by the same program that finds it on the
# host.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}h
mark=SECRET-$$-$RANDOM
away=$(mktemp -d "${TMPDIR:-/tmp}/away.XXXXXX")
chmod 755 "$away"
holder=
other=
clean_up() {
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    [ -z "$holder" ] || kill "$holder" 2>/dev/null || true
    umount "$work"/shared.*/mounted 2>/dev/null || true
    rm -rf "$away" "/dev/shm/$mark" "/dev/shm"/vshmem.*/"$mark" "/etc/${mark:?}" "/etc/${mark:?}".*
}

# attack UID COMMAND...: with machines of the user whom the command makes of us
attack() {
    local uid=$1 as=("${@:2}") home=$work/home.$1 shared=$work/shared.$1 results=$work/results.$1 \
        who="user $1:"
    mkdir -p "$home/run" "$home/cache" "$home/.ssh" "$shared/mounted" "$results"
    chmod 777 "$results"
    copy_cache "$home/cache"
    cp "$VSHMEM_BIN" "$VSHMEM_LIB" "$programs/look.py" "$home/"
    echo "$mark" >"$home/.ssh/id"
    echo "$mark" >"$away/file"
    echo "$mark" >"/dev/shm/$mark"
    echo shared >"$shared/file"
    ln -sf "$away/file" "$shared/link"
    cp "$away/file" "$shared/closed"
    chmod 755 "$work" "$home"
    chmod 644 "/dev/shm/$mark" "$home/.ssh/id"
    chmod 600 "$shared/closed"
    [ "$(id -u)" -ne 0 ] || chown -R "$uid:$uid" "$home" "$results"
    chmod 700 "$home/run"
    ours() {
        (cd "$shared" && timeout --kill-after=10 $((${LIMIT:-120} * slow)) "${as[@]}" env -u VSHMEM_LIB \
            HOME="$home" \
            XDG_CACHE_HOME="$home/cache" XDG_RUNTIME_DIR="$home/run" "$home/vshmem" "$@")
    }
    # What is mounted below what is shared.
    mounted=
    if [ "$uid" -eq 0 ] && mount -t tmpfs none "$shared/mounted" 2>/dev/null; then
        mounted=mounted
        cp "$away/file" "$shared/mounted/file"
    elif [ "$(id -u)" -eq 0 ] && mount --bind "$away" "$shared/mounted" 2>/dev/null; then
        mounted=mounted
    fi
    "${as[@]}" env SECRET="$mark" sleep 1000 &
    holder=$!
    ours pool create "$mark" --size 16M
    (cd / && VSHMEM_POOL=$mark ours run --local -- perl -e \
        '$q = msgget(7, 01600) // die $!; msgsnd($q, pack("l! a*", 1, $ARGV[0]), 0) or die $!' "$mark")

    # Somebody else is the user who would be the first machine's.
    if [ "$uid" -eq 0 ]; then
        setpriv --reuid 65000 --regid 65000 --clear-groups sleep 1000 &
        other=$!
    fi
    # What a group of the user's may read.
    if [ "$(id -u)" -eq 0 ]; then
        (umask 077 && echo "$mark" >"/etc/$mark")
        chgrp "$group" "/etc/$mark"
        chmod 640 "/etc/$mark"
    fi

    # shellcheck disable=SC2086 # a list of words
    LIMIT=300 ours up -n 2 --pool-size 64M --no-net --no-doorbell --driver none --share "$results:rw" \
        ${VSHMEM_TEST_UP:-} >"$work/up" 2>&1
    equal "$who machines come up" 0 $?
    # Linux 6.4 and newer keep pages of 9p files, unless told otherwise.
    ours exec vm1 -- /usr/bin/python3 - "$results/grows" <"$programs/follow.py" >"$work/followed" 2>&1 &
    follower=$!
    eventually "$who a machine opens a file" grep -q opened "$work/followed"
    ours exec vm0 -- sh -c "echo more >>'$results/grows'"
    wait $follower
    equal "$who what another one appends is there at once" "opened, more, mapped" "$(cat "$work/followed")"
    equal "$who and what was written by a mapping" "by a mapping" \
        "$(ours exec vm0 -- cat "$results/grows.mapped")"
    qemu=$(ours ps --json | field 'told["clusters"][0]["machines"][0]["pid"]')
    set -- "away=$away/file" "link=$shared/link" "home=$home/.ssh/id" "shm=/dev/shm/$mark" \
        "environ=/proc/$holder/environ" \
        "pool=/dev/shm/vshmem.$uid/$mark" "qmp=$home/run/vshmem/$VSHMEM_CLUSTER/vm1/qmp.sock" \
        ${mounted:+"mounted=$shared/mounted/file"}
    everything=$(printf '%s\n' "${@%%=*}" | sort | tr '\n' ' ')
    equal "$who on the host all is found" "${everything% }" \
        "$("${as[@]}" /usr/bin/python3 "$home/look.py" "$mark" "$@")"
    cp "$home/look.py" "$shared/look.py"
    chmod 644 "$shared/look.py"
    equal "$who a machine sees what is shared" shared "$(ours exec vm0 -- cat file)"
    equal "$who its root finds nothing else" "" \
        "$(ours exec -u root vm0 -- python3 look.py "$mark" "$@" 2>&1)"
    equal "$who nor does it read accounts' secrets" \
        0 "$(ours exec -u root vm0 -- sh -c 'cat /etc/shadow /etc/gshadow 2>/dev/null | wc -c')"
    if [ "$(id -u)" -eq 0 ]; then
        # As useradd and dpkg replace files, and make new ones.
        cp -p "/etc/$mark" "/etc/$mark.new"
        cp -p "/etc/$mark" "/etc/$mark.later"
        mv "/etc/$mark.new" "/etc/$mark"
        equal "$who what its group may read in /etc, the user reads" "$mark $mark" \
            "$("${as[@]}" cat "/etc/$mark" "/etc/$mark.later" | tr '\n' ' ' | sed 's/ $//')"
        equal "$who a machine does not, whatever has replaced the file, or is new" "" \
            "$(ours exec -u root vm0 -- cat "/etc/$mark" "/etc/$mark.later" 2>/dev/null)"
        rm "/etc/$mark" "/etc/$mark.later"
    fi
    [ "$uid" -ne 0 ] || equal "$who nor what only root may read where it is shared" "" \
        "$(ours exec -u root vm0 -- cat closed 2>/dev/null)"

    # Whatever a machine makes of QEMU, it is not there.
    equal "$who QEMU has no right of root's" "0000000000000000 1" \
        "$(awk '/^CapEff|^NoNewPrivs/ { printf "%s%s", s, $2; s = " " }' "/proc/$qemu/status")"
    equal "$who and its calls are filtered" 2 "$(awk '/^Seccomp:/ { print $2 }' "/proc/$qemu/status")"
    if [ "$uid" -eq 0 ]; then
        equal "$who it is not root" no "$([ "$(stat -c %u "/proc/$qemu")" -eq 0 ] || echo no)"
        equal "$who and nobody else is the user that it is" "$qemu" \
            "$(find /proc -maxdepth 1 -user "$(stat -c %u "/proc/$qemu")" -printf '%f\n')"
    fi
    if [ "$(id -u)" -eq 0 ]; then
        equal "$who QEMU itself sees none of it" "" \
            "$(for word in "$@"; do
                for root in "/proc/$qemu/root" "/proc/$qemu/root/shared"; do
                    case $word in link=* | mounted=*) continue ;; esac
                    [ ! -e "$root${word#*=}" ] || echo "$word"
                done
            done)"
        equal "$who and has no pool but its own" "cluster.$VSHMEM_CLUSTER" \
            "$(find "/proc/$qemu/fd" -lname '*vshmem.*' -printf '%l\n' 2>/dev/null | sed 's,.*/,,' | sort -u)"
    fi

    # A pool that it was given, and no longer is.
    code "$who the pool is granted" 0 ours grant "$mark" vm0
    equal "$who the machine reads it then" device \
        "$(ours exec -u root vm0 -- python3 look.py "$mark" "$@" 2>&1)"
    equal "$who the other one does not" "" "$(ours exec -u root vm1 -- python3 look.py "$mark" "$@" 2>&1)"
    [ "$uid" -ne 0 ] || equal "$who nobody else may open it" "600 " \
        "$(stat -c %a "/dev/shm/vshmem.0/$mark") $(getfattr -n system.posix_acl_access \
        "/dev/shm/vshmem.0/$mark" 2>/dev/null)"
    code "$who it is revoked" 0 ours revoke "$mark" vm0
    equal "$who and not to be read any more" "" \
        "$(ours exec -u root vm0 -- python3 look.py "$mark" "$@" 2>&1)"
    if [ "$(id -u)" -eq 0 ]; then
        equal "$who nor does QEMU have it" "" \
            "$(find "/proc/$qemu/fd" -lname "*$mark*"; grep "$mark" "/proc/$qemu/maps")"
    fi

    # What it may write to.
    [ "$uid" -ne 0 ] || chmod 777 "$results"
    ours exec vm0 -- sh -c 'echo result >"$0/new" && sync' "$results"
    equal "$who what is shared to write to can be written to" result "$(cat "$results/new")"
    equal "$who and is seen by the other machine" result "$(ours exec vm1 -- cat "$results/new")"
    ours exec -u root vm0 -- sh -c 'ln -s "$1" "$0/way"; cat "$0/way"; rm -f "$0/way"
        mknod "$0/disk" b 254 0; mknod "$0/memory" c 1 1' \
        "$results" "$away/file" >"$work/out" 2>/dev/null
    equal "$who links in it lead nowhere" "" "$(cat "$work/out")"
    equal "$who no device is made in it" "" "$(find "$results" -type b -o -type c)"
    ours exec -u root vm0 -- sh -c 'cd "$0" && cp /bin/true set && chmod 6755 set
        cp -p set kept && chmod 2750 set && perl -MFcntl -e "sysopen(F, q(made), O_CREAT | O_WRONLY, 06755)"
        mkdir group && chmod 2775 group && umask 022 && mkdir group/in' "$results" >"$work/out" 2>&1
    equal "$who no program in it is set-user-id or set-group-id" "" \
        "$(find "$results" -type f -perm /6000 -printf '%f %m\n')"
    equal "$who though modes are changed, and directories keep their group" "750 755 2775 2755" \
        "$(cd "$results" && stat -c %a set kept group group/in | tr '\n' ' ' | sed 's/ $//')"
    code "$who what is shared to read is written to" 0 ours exec -u root vm0 -- sh -c 'echo x >"$0/file"' \
        "$shared"
    equal "$who but for the machine itself" "shared x" \
        "$(cat "$shared/file") $(ours exec vm0 -- cat "$shared/file")"

    # What is not shared is said.
    cp /bin/true "$away/program"
    contains "$who a program that it does not see is told" "--share" \
        "$(ours exec vm0 -- "$away/program" 2>&1)"
    mkdir -p "$home/elsewhere"
    cp "$VSHMEM_LIB" "$home/elsewhere/library.so"
    contains "$who so is a library" "--share" \
        "$(cd / && timeout 60 "${as[@]}" env VSHMEM_LIB="$home/elsewhere/library.so" HOME="$home" \
        XDG_RUNTIME_DIR="$home/run" "$home/vshmem" run --vm vm0 -- true 2>&1)"

    # Once more after a restart.
    code "$who a machine is started anew" 0 ours restart vm0
    equal "$who it sees the same" "shared result" \
        "$(ours exec vm0 -- cat file "$results/new" | tr '\n' ' ' | sed 's/ $//')"
    equal "$who and no more" "" "$(ours exec -u root vm0 -- python3 look.py "$mark" "$@" 2>&1)"

    # It can't fill the host's disk by talking, nor give orders to a terminal.
    console=$home/run/vshmem/$VSHMEM_CLUSTER/vm1/console.log
    ours exec -u root vm1 -- sh -c 'head -c 700000 /dev/zero | tr "\0" x >/dev/console
        printf "\n\033[31mred\n" >/dev/console'
    equal "$who a console does not fill the disk" yes \
        "$([ $(($(cat "$console"* | wc -c))) -le 524288 ] && [ "$(cat "$console"* | wc -c)" -gt 100000 ] &&
        echo yes)"
    # What the machine has not said yet is lost with it.
    is_written() { grep -q red "$console"*; }
    eventually "$who what it says is kept" is_written
    kill -KILL "$(ours ps --json | field 'told["clusters"][0]["machines"][1]["pid"]')"
    are_told() { ours ps >"$work/words" 2>&1; grep -qF '[31mred' "$work/words"; }
    eventually "$who its last words are told" are_told
    equal "$who without orders to the terminal" 0 "$(grep -c "$(printf '\033')" "$work/words")"

    ours down
    # shellcheck disable=SC2086 # a list of words
    kill "$holder" $other
    # shellcheck disable=SC2086 # a list of words
    wait "$holder" $other 2>/dev/null
    holder=
    other=
    [ -z "$mounted" ] || umount "$shared/mounted"
    rm -f "/dev/shm/$mark" "/dev/shm/vshmem.$uid/$mark"
    equal "$who nothing is left" "" "$(find "$home/run" -mindepth 1)"
    rm -rf "$home/cache"
    eventually "$who nor who kept the logs" sh -c "! pgrep -f '^vshmem-sandbox vshmem-$VSHMEM_CLUSTER'"
}

for what in / /proc /dev/shm "$XDG_RUNTIME_DIR/vshmem" /no/such; do
    [ -d "$XDG_RUNTIME_DIR/vshmem" ] || mkdir -m 700 "$XDG_RUNTIME_DIR/vshmem"
    code "$what can't be shared" 2 vshmem up --share "$what"
done

code "where it lies can't be shared to write" 2 vshmem up --share "$work:rw"

group=$(getent group shadow | cut -d: -f3)
attack "$(id -u)" env
[ "$(id -u)" -ne 0 ] || attack 65534 setpriv --reuid 65534 --regid 65534 --groups "$group"
clean_up
rmdir "$XDG_RUNTIME_DIR/vshmem" 2>/dev/null
export VSHMEM_CLUSTER=$cluster
