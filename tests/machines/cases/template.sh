# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # lib.sh sets it; machines expand what is quoted
# Templates: machines that thaw are as those that boot, each is somebody of its own, and whatever goes wrong
# with a template, machines start. TEMPLATE_ROUNDS (1) says how often eight machines thaw.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}t
old_cache=${XDG_CACHE_HOME:-}
clean_up() {
    [ ! -d "$work/small" ] || umount "$work/small/vshmem/templates" 2>/dev/null || true
    vshmem down >/dev/null 2>&1 || true
}
copy_cache "$work/cache"
export XDG_CACHE_HOME=$work/cache
templates=$XDG_CACHE_HOME/vshmem/templates

up() { # up WHAT OPTION...: machines come up; what was said is in $work/up, and the seconds in $took
    local what="$1" begun=$EPOCHREALTIME
    shift
    if ! LIMIT=300 vshmem up "$@" --timeout 250 >"$work/up" 2>&1; then
        failed "$what" "$(cat "$work/up")"
        return
    fi
    took=$(awk -v from="$begun" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f", to - from }')
    passed "$what"
    echo "        it took $took s"
}
count() { find "$templates" -mindepth 1 -maxdepth 1 -type d | wc -l; }
works() { equal "$1" "vm0" "$(vshmem exec vm0 -- hostname)"; }

up "a machine boots" -n 1 --cold
cold=$took
vshmem down
equal "a machine that boots makes no template" "" "$(ls "$templates" 2>/dev/null)"
up "the first machine that may thaw makes a template" -n 1
contains "and says so" "making a template" "$(cat "$work/up")"
works "it takes commands"
vshmem down
up "the next one thaws" -n 1
holds "without a word" test -z "$(grep template "$work/up")"
holds "in less than half of the $cold s of a boot" \
    awk -v t="$took" -v cold="$cold" 'BEGIN { exit !(t < cold / 2) }'
works "it takes commands, too"
contains "its pool is there" "$(printf 'default  1G')" "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"
vshmem down
equal "there is one template" 1 "$(count)"
contains "which is listed" "  usable" "$(vshmem template ls)"
equal "also as JSON" True "$(vshmem template ls --json | field 'told["templates"][0]["current"]')"

# Eight of it at once.
different() { # different WHAT SCRIPT: its output differs in all machines
    equal "eight machines have eight $1" 8 \
        "$(vshmem run --no-prefix -n 8 -- sh -c "$2" | grep -c . && true)"
    local all
    all=$(vshmem run --no-prefix -n 8 -- sh -c "$2" | sort)
    equal "no two of them have the same $1" "" "$(uniq -d <<<"$all")"
}
# The machine's clock against this host's: what may be wrong of it at the most, in ms.
clock_of() {
    /usr/bin/python3 - "$VSHMEM_BIN" "$1" <<'PYTHON'
import subprocess, sys, time
line = [sys.argv[1], "exec", sys.argv[2], "--", "bash", "-c", "while read -r _; do echo $EPOCHREALTIME; done"]
with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as there:
    least = None
    for _ in range(40):
        asked = time.time()
        there.stdin.write("\n")
        there.stdin.flush()
        said = float(there.stdout.readline().replace(",", "."))
        answered = time.time()
        # It is wrong by no more than this, if it was read at the worse end of the time that the answer took.
        wrong = max(said - asked, answered - said, 0) if asked <= said <= answered else None
        outside = max(asked - said, said - answered, 0)
        entry = (outside, wrong if wrong is not None else outside)
        least = min(least or entry, entry)
    there.stdin.close()
print(f"{least[0] * 1000:.1f}")
PYTHON
}
# Each adds one to a number in a segment; the last one prints it.
cat >"$work/count.c" <<'C'
#include <stdio.h>
#include <sys/shm.h>
int main(void) {
    int *count = shmat(shmget(0x7e3, 4096, IPC_CREAT | 0600), 0, 0);
    return __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST) == 8 && printf("%d\n", *count) < 0;
}
C
"${CC:-cc}" -o "$work/count" "$work/count.c"
for ((round = 0; round < ${TEMPLATE_ROUNDS:-1}; round++)); do
    up "eight machines thaw" -n 8
    holds "the template served them" test -z "$(grep template "$work/up")"
    # What they have changed of it; the translator's memory is no part of that.
    own=0
    for n in 0 1 2 3 4 5 6 7; do
        own=$((own + $(awk '/^[0-9a-f]+-/ { its = /memfd:vshmem-template/ }
            its && /^Private_Dirty/ { n += $2 }
            END { print n + 0 }' "/proc/$(pid_of "vm$n")/smaps")))
    done
    holds "a machine has less than 64 MiB of memory to itself ($((own / 8 / 1024)))" \
        test "$own" -gt 0 -a $((own / 8)) -lt 65536
    different "boot ids" 'cat /proc/sys/kernel/random/boot_id'
    different "machine ids" 'cat /etc/machine-id'
    different "names" hostname
    different "addresses of their cards" 'cat /sys/class/net/eth0/address'
    different "random numbers" 'head -c 16 /dev/urandom | od -An -tx1'
    different "places of programs in memory" 'grep -m 1 stack /proc/self/maps | cut -d- -f1'
    equal "they share the pool" 8 "$(vshmem run --no-prefix -n 8 -- "$work/count")"
    for n in 0 3 7; do
        wrong=$(clock_of "vm$n")
        holds "the clock of vm$n is right to 10 ms ($wrong)" awk -v w="$wrong" 'BEGIN { exit !(w < 10) }'
    done
    vshmem exec vm5 -- /usr/bin/python3 -c 'import socket
socket.create_server(("", 7777)).accept()[0].sendall(b"it is vm5")' &
    eventually "a machine reaches another by its name" eval '[ "$(vshmem exec vm2 -- /usr/bin/python3 -c "
import socket; print(socket.create_connection((\"vm5\", 7777)).recv(99).decode())" 2>&1)" = "it is vm5" ]'
    vshmem down
done
nothing_left "nothing is left of them"

# A machine of another kind has another template.
up "a machine with two cores makes another template" -n 1 --cpus 2
contains "as it says" "making a template" "$(cat "$work/up")"
equal "it has them" 2 "$(vshmem exec vm0 -- nproc)"
vshmem down
equal "there are two templates" 2 "$(count)"
code "it can be made ahead" 0 vshmem template make -n 1 --cpus 2 --quiet
equal "and is there already" 2 "$(count)"
code "a machine with persistent memory has none" 1 vshmem template make -n 1 --transport dax --quiet
contains "and why" "it has persistent memory" "$(cat "$work/out")"
for option in "--pages transparent" "--placement pinned"; do
    # shellcheck disable=SC2086 # a list of words
    up "a machine with $option makes a template that has its memory" -n 1 $option
    contains "as it says" "making a template" "$(cat "$work/up")"
    vshmem restart vm0 --quiet
    works "it thaws again"
    contains "and has pages of its own" "" "$(grep -L memfd:vshmem-template "/proc/$(pid_of vm0)/maps")"
    vshmem down
done
code "one that is not there can't be removed" 1 vshmem template rm nosuch

# Two commands at once, and no template.
code "all can be removed" 0 vshmem template rm --all
equal "none is left" "" "$(find "$templates" -mindepth 1)"
(VSHMEM_CLUSTER=${cluster}u LIMIT=300 vshmem up -n 1 --quiet >"$work/other" 2>&1) &
other=$!
up "one of two commands at once" -n 1
holds "and the other" wait "$other"
equal "make one template" 1 "$(count)"
vshmem down --all

# Whatever is wrong with a template.
template=$(find "$templates" -mindepth 1 -maxdepth 1 -type d)
printf 'x' | dd of="$template/memory" bs=1 seek=4000000 conv=notrunc 2>/dev/null
up "a machine starts though its template's memory is damaged" -n 1
contains "a new template is made" "damaged; it is made anew" "$(cat "$work/up")"
vshmem down
truncate -s 1000 "$template/state"
echo '{' >"$template/template.json"
up "a machine starts though its template is no template" -n 1
works "it works"
vshmem down

# A QEMU that does not do its part: KIND is a word of its line, and DOES what it does then.
qemu=$(command -v qemu-system-x86_64)
bad_qemu() { # bad_qemu WORD DOES
    mkdir -p "$work/bad"
    cat >"$work/bad/qemu-system-x86_64" <<QEMU
#!/bin/bash
case " \$* " in
*$1*) $2 ;;
esac
exec "$qemu" "\$@"
QEMU
    chmod -R a+rx "$work/bad"
}
bad_qemu '-incoming' 'exit 3'
PATH=$work/bad:$PATH up "a machine boots if it can't thaw" -n 2
contains "as it says" " boots: it did not thaw from its template, which is removed" "$(cat "$work/up")"
holds "once" test "$(grep -c "did not thaw" "$work/up")" -eq 1
works "it works"
vshmem down
bad_qemu 'vshmem-template' 'exit 3'
PATH=$work/bad:$PATH up "a machine boots if there can be no template" -n 1
contains "as it says" "machines boot, without a template" "$(cat "$work/up")"
works "it works"
vshmem down
contains "the reason is kept" "failed: QEMU has ended" "$(vshmem template ls)"
PATH=$work/bad:$PATH up "it is not tried again" -n 1
contains "but told" "vshmem template rm" "$(cat "$work/up")"
vshmem down

# A command that is killed while it makes one, and a machine that is killed while it thaws.
vshmem template rm --all
for moment in 0.4 1.2 2.5; do
    "$VSHMEM_BIN" up -n 1 --quiet >"$work/up" 2>&1 &
    sleep "$moment"
    kill -KILL $!
    wait $! 2>/dev/null
    eventually "a template ends with its command ($moment s)" \
        eval '! pgrep -f "^qemu-system-x86_64 -name vshmem-template"'
    vshmem down >/dev/null 2>&1
done
up "and the next command makes it" -n 1
vshmem down
equal "nothing else is left in the store" 0 "$(find "$templates" -name '*.new' | wc -l)"

# A disk without room.
if [ "$(id -u)" -eq 0 ]; then
    copy_cache "$work/small"
    mkdir -m 700 "$work/small/vshmem/templates"
    if mount -t tmpfs -o size=20M,mode=700 tmpfs "$work/small/vshmem/templates" 2>/dev/null; then
        XDG_CACHE_HOME=$work/small up "a machine thaws though its template can't be kept" -n 1
        contains "as it says" "could not keep a template" "$(cat "$work/up")"
        XDG_CACHE_HOME=$work/small works "it works"
        vshmem down
        equal "nothing of it fills the disk" "" "$(find "$work/small/vshmem/templates" -name memory)"
        umount "$work/small/vshmem/templates"
    fi
fi

# docs/guide-start-fast.md, as it is printed there.
blocks_of "$MACHINES_ROOT/docs/guide-start-fast.md" "Start fast: templates" "$work/guide"
as_user_in of-guide
types "$work/guide/1.sh"
types "$work/guide/2.sh"
cd "$work" || exit 1

nothing_left "nothing is left of templates"
export VSHMEM_CLUSTER=$cluster
if [ -n "$old_cache" ]; then export XDG_CACHE_HOME=$old_cache; else unset XDG_CACHE_HOME; fi
