# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # machines expand what is quoted; lib.sh sets it
# Files that programs write in a machine. In a directory that is shared to be read they are the machine's
# alone: the user is told, and can fetch them. With --rw they are the host's.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}f
place=$work/files
mkdir -p "$place/target"
chmod 777 "$place"
echo input >"$place/input.dat"
here() { (cd "$place" && "$@"); }
if ! LIMIT=300 here vshmem up -n 1 --no-net --no-doorbell --driver none >"$work/up" 2>&1; then
    failed "a machine comes up in a directory" "$(cat "$work/up")"
    exit 1
fi
passed "a machine comes up in a directory: $(tail -n 1 "$work/up")"
contains "up says that it is seen" "${place%/files}" "$(grep 'machines see' "$work/up")"

said=$(here vshmem exec -u root vm0 -- sh -c 'echo result >out.txt; mkdir run1; echo deep >run1/deep' 2>&1)
contains "a program that writes there is told that its files are the machine's alone" \
    "written in this machine only" "$said"
contains "which files" "$place/out.txt" "$said"
contains "and directories" "$place/run1" "$said"
equal "there is nothing on the host" "input.dat target" "$(here ls | paste -s -d ' ')"
equal "what is written again is not told again" "" \
    "$(here vshmem exec -u root vm0 -- sh -c 'echo more >>out.txt; cat input.dat >/dev/null' 2>&1)"
equal "nor are caches, and what lies elsewhere" "" "$(here vshmem exec -u root vm0 -- sh -c \
    'mkdir __pycache__; echo x >__pycache__/x; echo x >/tmp/x; mkdir -p /var/tmp; echo x >/var/tmp/x' 2>&1)"

code "the file is fetched" 0 here vshmem cp vm0:out.txt target
equal "as it is" "result more" "$(paste -s -d ' ' "$place/target/out.txt")"
code "a directory is not, without a word for it" 1 here vshmem cp vm0:run1 target
contains "which is named" "with -r" "$(cat "$work/out")"
code "with it, it is" 0 here vshmem cp -r vm0:run1 target
equal "with what is in it" deep "$(cat "$place/target/run1/deep")"
code "a file that is not there is none here" 1 here vshmem cp vm0:nosuch target
equal "not even in part" "out.txt run1" \
    "$(find "$place/target" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | paste -s -d ' ')"
chmod 640 "$place/input.dat"
code "a file is sent" 0 here vshmem cp input.dat vm0:/tmp/
equal "with its mode" "640 input" \
    "$(vshmem exec vm0 -- sh -c 'stat -c %a /tmp/input.dat; cat /tmp/input.dat' | paste -s -d ' ')"
code "a directory is sent" 0 here vshmem cp -r target vm0:/tmp/sent
equal "whole" deep "$(vshmem exec vm0 -- cat /tmp/sent/run1/deep)"
code "two of the host's are none of a machine's" 2 here vshmem cp input.dat target
vshmem exec -u root vm0 -- sh -c \
    'cat >/tmp/find && chmod 755 /tmp/find && mount --bind /tmp/find "$(command -v find)"' <<'LIE'
#!/bin/sh
printf 'f../../evil\0'
LIE
code "a machine that names a file outside of the directory is not believed" 125 \
    here vshmem cp -r vm0:run1 "$place/lies"
holds "nothing is made outside" [ ! -e "$place/../evil" ]

contains "what it prints while it boots can be read" "commands are taken" "$(vshmem logs vm0)"
vshmem logs -f vm0 >"$work/followed" &
follower=$!
vshmem exec -u root vm0 -- sh -c 'echo "<0>a word of the kernel" >/dev/kmsg'
eventually "and followed" grep -q "a word of the kernel" "$work/followed"
kill -INT "$follower" 2>/dev/null || kill "$follower"
wait "$follower"
vshmem down >/dev/null 2>&1

if LIMIT=300 here vshmem up --rw -n 1 --no-net --no-doorbell --driver none >"$work/up" 2>&1; then
    contains "with --rw up says that it can be written" "$place (to write)" "$(cat "$work/up")"
    equal "a program's files are on the host, without a word" "" \
        "$(here vshmem exec vm0 -- sh -c 'echo result >own.txt' 2>&1)"
    equal "as they are" result "$(cat "$place/own.txt")"
else
    failed "a machine comes up with --rw" "$(cat "$work/up")"
fi
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=$cluster
