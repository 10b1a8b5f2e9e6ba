#!/bin/sh
# The suite "cores" of the Vshmem lab, by itself: nothing but what a minimal Debian has is needed, and nothing
# is installed. What follows the last line of this script is its programs.
#
#   sh THIS [MINUTES [FILE [REPETITIONS]]]
#
# measures for so long (9), but no more than so often, and leaves FILE (cores-DATE.txt), which
# `vshmem lab report` and `vshmem lab keep` take where the lab is.
#
# A repetition has a turn of each job, the next one in the opposite order. An interrupt keeps what is done.
set -eu

minutes=${1:-9}
out=${2:-cores-$(date -u +%Y-%m-%d-%H%M%S).txt}
most=${3:-1000}
begun=$(date +%s)
load=$(cut -d ' ' -f 1 /proc/loadavg)
for needed in awk date gzip nproc seq sort tail tar taskset timeout; do
    command -v "$needed" >/dev/null || {
        echo "$0: $needed is not installed, which each Debian has (coreutils, util-linux, tar, gzip)." >&2
        exit 1
    }
done
[ "$(uname -m)" = @ARCHITECTURE@ ] || {
    echo "$0: The programs in it are of @ARCHITECTURE@, and this is $(uname -m)." >&2
    exit 1
}
work=$(mktemp -d)
POOL=/dev/shm/vshmem-lab-$$-cores
LIBS=$work/lib LIBRARY=$work/lib/libvshmem.so
VSHMEM=$work/bin/vshmem MPIEXEC=$work/bin/mpiexec.hydra MPI=mpich
export POOL LIBS LIBRARY VSHMEM MPIEXEC MPI
VSHMEM_LIB=$LIBRARY
export VSHMEM_LIB
unset VSHMEM_POOL VSHMEM_KEYS
PATH=$work/bin:$PATH
trap 'rm -rf "$work" "$POOL"' EXIT
trap 'exit 130' INT TERM HUP
tail -n +"$(($(awk '/^exit 0 # programs$/ { print NR; exit }' "$0") + 1))" "$0" | tar -xzf - -C "$work"

user=
nice=
if [ "$(id -u)" -eq 0 ]; then
    user='-u 65534'
    [ -n "$(nice -n -20 true 2>&1)" ] || nice='nice -n -20'
fi

# The pool, anew.
pool() {
    [ ! -e "$POOL" ] || "$VSHMEM" pool rm --force "$POOL" >/dev/null
    "$VSHMEM" pool create "$POOL" --size 1G >/dev/null
    [ -z "$user" ] || chown 65534:65534 "$POOL"
}

# Hundredths of a second that all processors have been busy with, and those of our own children.
busy() {
    awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 }' /proc/stat
}
ours() { # of what times has written: it tells of the shell that it is called in
    awk '{ for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); sum += 60 * part[1] + part[2] } }
        END { printf "%.0f\n", 100 * sum }' "$work/times"
}

fact() {
    echo "@fact $*"
}

run() { # run JOB N WAY IN PROGRAM WORD...: one turn
    job=$1 n=$2 way=$3 in=$4 program=$5
    shift 5
    key=$(printf '0x%x' $((0x46000000 + turn)))
    words=$(echo "$*" | sed -e "s/@user@/$user/" -e "s/@key@/$key/")
    status=0
    # shellcheck disable=SC2086 # lists of words
    timeout -k 5 60 $nice "$work/bin/team.sh" "$n" "$way" "$in" "$work/bin/$program" $words \
        >"$work/said" 2>&1 </dev/null || status=$?
    echo "@turn $job $repetition $turn $(date +%s.%N) $status"
    cat "$work/said"
    if [ "$status" -ne 0 ]; then # it may have left something
        ipcrm -M "$key" 2>/dev/null || true
        pool
    fi
    turn=$((turn + 1))
}

pool
{
    echo "@vshmem-lab cores 1"
    echo "@about $(cat "$work/about")"
    fact date "$(date -u '+%Y-%m-%d %H:%M UTC')"
    fact processor "$(awk -F ': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) usable"
    fact processors "$(nproc)"
    fact kernel "$(uname -sr)"
    fact flags "$(grep -qm 1 ' hypervisor' /proc/cpuinfo && echo virtual || echo bare)"
    fact user "$(id -u)"
    fact nice "${nice:-usual}"
    fact load "$load"
} >"$out"
times >"$work/times"
before=$(busy) mine=$(ours) since=$(date +%s)
repetition=0 turn=0 longest=0
whole=$(awk -v minutes="$minutes" 'BEGIN { printf "%.0f\n", 60 * minutes }')
until=$((begun + whole - 5))
cp "$work/jobs" "$work/order"
while [ "$repetition" -lt "$most" ] && [ $(($(date +%s) + longest)) -lt "$until" ]; do
    started=$(date +%s)
    while read -r line; do
        [ "$(date +%s)" -lt "$until" ] || break 2
        # shellcheck disable=SC2086 # a list of words
        run $line >>"$out"
    done <"$work/order"
    took=$(($(date +%s) - started))
    [ "$took" -le "$longest" ] || longest=$took
    repetition=$((repetition + 1))
    echo "$(($(date +%s) - begun)) s of $whole: $repetition repetitions" >&2
    if [ $((repetition % 2)) -eq 1 ]; then tac "$work/jobs"; else cat "$work/jobs"; fi >"$work/order"
done
times >"$work/times"
{
    echo "@beside $(($(date +%s) - since)) $(($(busy) - before)) $(($(ours) - mine))"
    fact after "$(cut -d ' ' -f 1 /proc/loadavg)"
    echo "@complete"
} >>"$out"
echo "The results are in $out. Where the lab is: vshmem lab report $out; vshmem lab keep $out NAME" >&2
exit 0 # programs
