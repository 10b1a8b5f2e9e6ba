#!/bin/bash
# PostgreSQL with all its shared memory from System V: work, crashes, recovery.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

bin=$(find /usr/lib/postgresql/*/bin -maxdepth 0 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] || skip "PostgreSQL is not installed; 'apt-get install postgresql postgresql-contrib' brings it"
PATH=$bin:$PATH
need pgbench postgresql-contrib

data=$dir/data
port=5432
export PGHOST=$dir PGPORT=$port PGUSER=test PGDATABASE=postgres

# PostgreSQL refuses root.
as() {
    "${as_user[@]}" "${on_vshmem[@]}" "$@"
}
query() {
    "${as_user[@]}" psql -X -At -v ON_ERROR_STOP=1 -c "$1"
}
start() {
    as pg_ctl -D "$data" -l "$dir/server.log" -w -t 60 start >>pg_ctl.log 2>&1
}
stop() {
    as pg_ctl -D "$data" -m "$1" -w -t 60 stop >>pg_ctl.log 2>&1
}
must_start() {
    start || {
        tail -n 30 server.log
        fail "PostgreSQL does not start $*"
    }
}
postmaster() {
    head -n 1 "$data/postmaster.pid"
}
gone() {
    ! kill -0 "$1" 2>/dev/null
}
answers() {
    query 'select 1' >/dev/null 2>&1
}
segments() {
    objects | sed 's/segments \([0-9]*\),.*/\1/'
}
# The server runs in a session of its own: end it whatever happens.
end_server() {
    [ ! -f "$data/postmaster.pid" ] || kill_with_children "$(postmaster)"
}
trap end_server EXIT

needs_sysv "${as_user[@]}" initdb -D "$dir/refused" -U test -A trust -N
as initdb -D "$data" -U test -A trust -N >initdb.log 2>&1 || {
    cat initdb.log
    fail initdb
}
equal "objects that initdb leaves" "segments 0, sets 0, queues 0" "$(objects)"
"${as_user[@]}" tee -a "$data/postgresql.conf" >/dev/null <<C
shared_memory_type = sysv
dynamic_shared_memory_type = sysv
shared_buffers = 32MB
listen_addresses = ''
unix_socket_directories = '$dir'
port = $port
fsync = off
max_parallel_workers_per_gather = 2
min_parallel_table_scan_size = 0
parallel_setup_cost = 0
parallel_tuple_cost = 0
C
must_start
equal shared_memory_type sysv "$(query 'show shared_memory_type')"
equal dynamic_shared_memory_type sysv "$(query 'show dynamic_shared_memory_type')"

# Work: four clients, and queries whose workers share their results in further segments.
as pgbench -i -q -s 5 >pgbench.log 2>&1 || {
    cat pgbench.log
    fail "pgbench -i"
}
before=$(segments)
[ "$before" -ge 2 ] || fail "a running server has $before segments"
as pgbench -c 4 -j 2 -t 250 >pgbench.log 2>&1 || {
    cat pgbench.log
    fail pgbench
}
grep -q 'actually processed: 1000/1000' pgbench.log || fail "pgbench: $(cat pgbench.log)"
equal "sums agree" t "$(query 'select (select sum(abalance) from pgbench_accounts)
    = (select sum(delta) from pgbench_history)')"
parallel='select count(*), sum(a.aid::bigint) from pgbench_accounts a join pgbench_accounts b using (aid)'
query "explain (analyze, costs off, timing off) $parallel" >plan.log
grep -q 'Workers Launched: [12]' plan.log || fail "no parallel workers: $(cat plan.log)"
for _ in 1 2 3 4; do query "$parallel" >"parallel.$_" & done
wait
for _ in 1 2 3 4; do equal "a parallel join" "500000|125000250000" "$(cat "parallel.$_")"; done
equal "segments after the parallel queries" "$before" "$(segments)"

# A backend that is killed: the server throws all away and starts anew by itself.
"${as_user[@]}" psql -X -At -c 'select pg_sleep(100)' >/dev/null 2>&1 &
client=$!
find_victim() {
    victim=$(query "select pid from pg_stat_activity where query = 'select pg_sleep(100)'")
    [ -n "$victim" ]
}
eventually "a backend to kill" find_victim
kill -KILL "$victim"
wait $client || true
WITHIN=60 eventually "recovery after a killed backend" answers
grep -q 'all server processes terminated; reinitializing' server.log || fail "no crash recovery in server.log"
equal "rows after recovery" 500000 "$(query 'select count(*) from pgbench_accounts')"
equal "segments after recovery" "$before" "$(segments)"

# Stopped at once: nothing remains.
stop immediate || fail "pg_ctl -m immediate stop"
equal "after an immediate stop" "segments 0, sets 0, queues 0" "$(objects)"
must_start "after an immediate stop"
equal "rows after an immediate stop" 1000 "$(query 'select count(*) from pgbench_history')"

# The postmaster is killed while a backend lives on: a new one must see that the
# segment is in use, or two servers would write the same files.
"${as_user[@]}" psql -X -At -c 'select pg_sleep(100)' >/dev/null 2>&1 &
client=$!
eventually "a backend to stop" find_victim
kill -STOP "$victim"
killed=$(postmaster)
children=$(pgrep -P "$killed")
kill -KILL "$killed"
eventually "the postmaster's end" gone "$killed"
others_gone() {
    local pid
    for pid in $children; do
        [ "$pid" = "$victim" ] || gone "$pid" || return 1
    done
}
eventually "the other backends' end" others_gone
cp server.log before.log
if start; then
    fail "a second server started while a backend of the first is alive"
fi
grep -q 'pre-existing shared memory block (key [0-9]*, ID [0-9]*) is still in use' \
    <(tail -n +"$(($(wc -l <before.log) + 1))" server.log) || {
    tail -n 10 server.log
    fail "the second server refused, but not for the segment that is in use"
}
kill -KILL "$victim"
wait $client || true
eventually "the last backend's end" gone "$victim"
must_start "once the last backend is gone"
equal "segments after the new start" "$before" "$(segments)"
equal "rows after the new start" 1000 "$(query 'select count(*) from pgbench_history')"

stop fast || fail "pg_ctl -m fast stop"
equal "after the last stop" "segments 0, sets 0, queues 0" "$(objects)"
version=$(pgbench --version | sed 's/[^0-9]*\([0-9.]*\).*/\1/')
echo "$version: initdb, pgbench, parallel joins, crash recovery, refusal of a second server"
