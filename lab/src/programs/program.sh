#!/bin/sh
# program.sh WHAT SECONDS FILES [WORD...]: a real program does for so long what it does by System V IPC.
#
#   stress STRESSOR N OPTION...   stress-ng by N workers
#   pgbench                       PostgreSQL, all of whose shared memory is System V's, and four clients
#   apache                        Apache httpd whose accept mutex is a System V semaphore, and eight clients
#   uwsgi                         uWSGI with one for its locks, and eight clients
#   fakeroot                      fakeroot over queues: an ordinary user's chown
#   berkeleydb                    Berkeley DB in a System V segment, and two processes
#   afl                           AFL++, whose map is a System V segment, and a program that does little
#   mpich                         NetPIPE by MPICH over UCX's System V transport: 64 bytes one way
#
# PRELOAD is a library that the programs are run with, if it is set. FILES is a directory, where programs of
# ours are, and where what one turn prepares for the next ones is kept. Prints "WHAT NANOSECONDS" for each
# operation: a request, a transaction, an execution.
set -eu

what=$1 seconds=$2 files=$3
shift 3
work=$(mktemp -d "$files/turn.XXXXXX")
server=
finish() {
    [ ! -f database/postmaster.pid ] || server=$(head -n 1 database/postmaster.pid)
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
cd "$work"

on() { env ${PRELOAD:+"LD_PRELOAD=$PRELOAD"} "$@"; }
# serve COMMAND...: in the background; it ends with this script. In a session of its own, for Apache sends
# what ends it to its process group.
serve() {
    setpriv --pdeathsig TERM setsid env ${PRELOAD:+"LD_PRELOAD=$PRELOAD"} "$@" >server.log 2>&1 &
    server=$!
}
quietly() {
    "$@" >said 2>&1 || {
        cat said >&2
        exit 1
    }
}
# each RATE: nanoseconds, of operations a second
each() { awk -v rate="$1" 'BEGIN { if (rate > 0) printf "%.1f\n", 1e9 / rate }'; }
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
answers() { # answers PORT: waits until a server does
    for _ in $(seq 200); do
        ! ab -q -n 1 "http://127.0.0.1:$1/index.html" >said 2>&1 || return 0
        sleep 0.05
    done
    cat server.log said >&2
    return 1
}
# Requests a second by eight clients, all of which are answered.
requests() {
    quietly ab -q -t "$seconds" -n 10000000 -c 8 "http://127.0.0.1:$1/index.html"
    awk '/^Failed requests:/ { failed = $3 } /^Non-2xx/ { failed = 1 } /^Requests per second:/ { rate = $4 }
        END { if (!failed) print rate }' said
}

case $what in
stress)
    name=$1
    shift
    quietly on stress-ng --"$name" "$@" --timeout "${seconds}s" --metrics-brief
    took=$(awk -v name="$name" '$4 == name && $5 > 0 { printf "%.1f\n", 1e9 * $6 / $5; exit }' said)
    ;;
pgbench)
    bin=$(find /usr/lib/postgresql/*/bin -maxdepth 0 | sort -V | tail -n 1)
    PATH=$bin:$PATH
    export PGHOST="$work" PGUSER=test PGDATABASE=postgres
    begin() { quietly on pg_ctl -D "$work/database" -l "$work/server.log" -o "-k $work" -w start; }
    end() { quietly pg_ctl -D "$work/database" -m fast -w stop; }
    if [ ! -d "$files/database" ]; then
        quietly initdb -D "$work/database" -U test -A trust -N
        cat >>"$work/database/postgresql.conf" <<'END'
shared_memory_type = sysv
dynamic_shared_memory_type = sysv
listen_addresses = ''
fsync = off
END
        begin
        quietly pgbench -i -q -s 5
        end
        mv database "$files"
    fi
    cp -r "$files/database" .
    chmod 700 database
    begin
    quietly pgbench -c 4 -j 2 -T "$seconds"
    rate=$(awk '/^tps = / { print $3 }' said)
    end
    took=$(each "$rate")
    ;;
apache)
    PATH=$PATH:/usr/sbin
    port=$(free_port)
    modules=/usr/lib/apache2/modules
    echo hello >index.html
    cat >httpd.conf <<END
ServerRoot $work
ServerName localhost
LoadModule mpm_prefork_module $modules/mod_mpm_prefork.so
LoadModule authz_core_module $modules/mod_authz_core.so
Mutex sysvsem
Listen 127.0.0.1:$port
# With one port there is no mutex.
Listen 127.0.0.1:$(free_port)
PidFile $work/httpd.pid
ErrorLog $work/error.log
DocumentRoot $work
StartServers 8
MaxRequestWorkers 8
END
    serve apache2 -f "$work/httpd.conf" -DFOREGROUND
    answers "$port"
    took=$(each "$(requests "$port")")
    ;;
uwsgi)
    port=$(free_port)
    echo hello >index.html
    serve uwsgi --http-socket "127.0.0.1:$port" --master --processes 4 --lock-engine ipcsem --thunder-lock \
        --check-static "$work" --disable-logging --die-on-term
    answers "$port"
    took=$(each "$(requests "$port")")
    ;;
fakeroot)
    quietly on fakeroot-sysv python3 "$files/chown.py" "$seconds"
    took=$(cat said)
    ;;
berkeleydb)
    quietly on "$files/berkeleydb" "$seconds"
    took=$(cat said)
    ;;
afl)
    mkdir in
    echo seed >in/seed
    export AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_NO_UI=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1
    quietly on afl-fuzz -V "$seconds" -i in -o out -- "$files/fuzzed"
    took=$(each "$(awk -F '[: ]+' '$1 == "execs_per_sec" { print $2 }' out/default/fuzzer_stats)")
    ;;
mpich)
    # UCX's memory hooks make their own system calls, behind the interposer's back.
    export UCX_TLS=sysv,self UCX_MEM_MMAP_HOOK_MODE=none HYDRA_LAUNCHER=fork
    # Three trials of so many messages, each of which takes half a microsecond or so, there and back.
    quietly mpiexec.mpich -n 2 env ${PRELOAD:+"LD_PRELOAD=$PRELOAD"} \
        NPmpich2 -p 0 -l 64 -u 64 -n $((seconds * 300000)) -o times
    # Bytes, and 2^20 bits a second.
    took=$(awk '{ printf "%.1f\n", $1 * 8 / ($2 * 1048576) * 1e9 }' times)
    ;;
*)
    echo "program.sh: there is no $what" >&2
    exit 2
    ;;
esac
[ -n "$took" ] || {
    cat said >&2
    echo "program.sh: $what did nothing" >&2
    exit 1
}
echo "$what $took"
