#!/bin/sh
# Commands that fail, and the exit codes that vshmem(1) gives for that.
#
#   codes.sh VSHMEM
set -eu

vshmem=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-codes.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/run"
export XDG_RUNTIME_DIR="$work/run" VSHMEM_POOL="$work/pool"
unset VSHMEM_CLUSTER VSHMEM_KEYS
none=none-$$
cd "$work"
: >"$work/file"
"$vshmem" pool create "$work/pool" --size 1M
failed=0

# Behind each code a command, without its first word.
while read -r code words; do
    status=0
    eval "'$vshmem' $words" >"$work/said" 2>&1 </dev/null || status=$?
    if [ "$status" -ne "$code" ]; then
        echo "codes: vshmem $words ended with $status, not $code: $(cat "$work/said")" >&2
        failed=1
    fi
done <<LIST
0 --version
0 help up
0 ps
0 pool ls
0 check
0 pool create ./odd --size 3M
0 run --local -- true
1 agent --status
1 agent --stop
1 detach $none
1 explain /$none
1 explain ./file
1 grant $none vm0
1 ipcrm -q 1
1 ipcrm --pool $none -q 1
1 ipcs --pool $none
1 pool create ./pool
1 pool rm $none
1 top --pool $none --once
2
2 nonsense
2 agent --json
2 agent --vectors 0 $none
2 agent --vectors 33 $none
2 attach 'a b' --qmp ./file
2 attach db
2 attach vm1 --qmp ./file
2 completions tcsh
2 down -c 'a b'
2 exec -c a/b vm0 -- true
2 exec vm0
2 explain
2 grant $none
2 ipcrm
2 ipcrm -M x
2 pool create 'a b'
2 pool create $none --mode 999
2 pool create $none --size 1K
2 pool create $none --size 64M --limit semmni=99999999
2 pool create $none --size x
2 pool rm
2 ps --nonsense
2 run --local --vm vm0 -- true
2 run --local -e =1 -- true
2 run --local -n 0 -- true
2 run --vm vm0 -- true : --vm
2 schema up
2 top -n 0
2 up --cluster 'a b'
2 up --cpus 0
2 up --largest-pool 3M
2 up --memory 1K
2 up --pool-size 3M
2 up --spare-pools 1000
2 up --timeout x
2 up -n 0
2 up -n 33
125 attach db --qmp ./$none
125 check $none
125 down
125 down -c $none
125 exec vm0 -- true
125 restart
125 revoke $none vm0
125 run --local -u $none -- true
125 run -- true
125 shell vm0
125 up --kernel ./$none
126 run --local -- ./file
126 run --local -C /$none -- true
127 run --local -- ./$none
127 run --local -n 2 -- ./$none
7 run --local -- sh -c 'exit 7'
137 run --local -n 2 -- sh -c 'kill -KILL \$\$'
LIST
exit $failed
