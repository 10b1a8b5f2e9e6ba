#!/bin/bash
# Apache httpd with a System V semaphore for its accept mutex: children of another
# user, and children killed while they may hold it.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

PATH=$PATH:/usr/sbin
need apache2 apache2-bin
need ab apache2-utils

modules=/usr/lib/apache2/modules
for module in mpm_prefork authz_core; do
    [ -f $modules/mod_$module.so ] || skip \
        "Apache's $module is not installed; 'apt-get install apache2-bin' brings it"
done

# Two ports, because a single one needs no mutex.
read -r one two <<<"$(/usr/bin/python3 "$here/free_ports.py")"
mkdir htdocs
echo hello >htdocs/index.html
chmod 755 htdocs
cat >httpd.conf <<C
ServerRoot $dir
ServerName localhost
LoadModule mpm_prefork_module $modules/mod_mpm_prefork.so
LoadModule authz_core_module $modules/mod_authz_core.so
Mutex sysvsem
Listen 127.0.0.1:$one
Listen 127.0.0.1:$two
PidFile $dir/httpd.pid
ErrorLog $dir/error.log
DocumentRoot $dir/htdocs
StartServers 4
MinSpareServers 4
MaxRequestWorkers 6
C
# As root the parent gives its semaphore to the user whom the children change to.
[ "$(id -u)" != 0 ] || printf 'User nobody\nGroup nogroup\n' >>httpd.conf

end_server() {
    [ ! -f httpd.pid ] || kill_with_children "$(cat httpd.pid)"
}
trap end_server EXIT
answers() {
    ab -q -n 1 "http://127.0.0.1:$1/index.html" >/dev/null 2>&1
}
# load PORT REQUESTS: four clients at once; every request must be answered.
load() {
    ab -q -s 20 -n "$2" -c 4 "http://127.0.0.1:$1/index.html" >"ab.$1" 2>&1 &&
        grep -q "^Complete requests: *$2$" "ab.$1" && grep -q '^Failed requests: *0$' "ab.$1" &&
        ! grep -q '^Non-2xx' "ab.$1"
}

needs_sysv apache2 -f "$dir/httpd.conf" -X
rm -f httpd.pid
"${on_vshmem[@]}" apache2 -f "$dir/httpd.conf" >start.log 2>&1 || {
    cat start.log error.log
    fail "Apache does not start"
}
eventually "an answer" answers "$one"
equal "a running server's sets" "sets 1" "$(objects | grep -o 'sets [0-9]*')"

load "$one" 1000 & first=$!
load "$two" 1000 & second=$!
wait $first || fail "requests to the first port: $(cat "ab.$one")"
wait $second || fail "requests to the second port: $(cat "ab.$two")"

# Kill children, one of which waits with the mutex in hand while all are idle.
parent=$(cat httpd.pid)
for _ in 1 2 3; do
    # shellcheck disable=SC2046 # a list of pids
    kill -KILL $(pgrep -P "$parent")
    eventually "an answer after all children were killed" answers "$one"
    eventually "an answer on the second port" answers "$two"
done
load "$two" 500 || fail "requests after children were killed: $(cat "ab.$two")"

kill -TERM "$parent"
stopped() { ! kill -0 "$parent" 2>/dev/null; }
eventually "Apache's end" stopped
nothing_left || fail "objects are left: $(objects)"
echo "2500 requests, children killed while they hold the accept mutex"
