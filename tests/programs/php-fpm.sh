#!/bin/bash
# php-fpm: workers of another user share opcache's System V segments, and a counter under a semaphore.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

server=$(find /usr/sbin -name 'php-fpm*' -print -quit)
[ -n "$server" ] || skip "php-fpm is not installed; 'apt-get install php-fpm' brings it"
need cgi-fcgi libfcgi-bin
for module in posix sysvsem sysvshm 'Zend OPcache'; do
    "$server" -m | grep -qx "$module" ||
        skip "PHP's module $module is not installed; 'apt-get install php-fpm' brings it"
done

workers=4
cat >fpm.conf <<C
[global]
error_log = $dir/error.log
[www]
listen = $dir/socket
pm = static
pm.max_children = $workers
C
# As root the master makes opcache's segments, and the workers change to this user.
[ "$(id -u)" != 0 ] || printf '%s\n' 'user = nobody' 'group = nogroup' >>fpm.conf
install -m 644 "$here/php/page.php" page.php
fpm=("$server" -y "$dir/fpm.conf" -d opcache.preferred_memory_model=shm -d opcache.file_update_protection=0)

request() { # request [QUERY]: what the page prints
    env REQUEST_METHOD=GET SCRIPT_NAME=/page.php SCRIPT_FILENAME="$dir/page.php" QUERY_STRING="${1:-}" \
        cgi-fcgi -bind -connect "$dir/socket" 2>/dev/null | sed '1,/^\r*$/d'
}
answers() { [ -n "$(request)" ]; }

needs_sysv "${fpm[@]}" -t
"${on_vshmem[@]}" "${fpm[@]}" -F >start.log 2>&1 &
master=$!
trap 'kill_with_children "$master"' EXIT
eventually "an answer" answers

requests=200 clients=()
for client in 1 2 3 4; do
    for ((i = 0; i < requests / 4; i++)); do request; done >"client.$client" &
    clients+=($!)
done
wait "${clients[@]}"
equal "requests that were answered" $requests "$(cat client.* | wc -l)"
equal "their sum" $((requests + 1)) "$(sort -n -k 2 client.* | tail -n 1 | cut -d' ' -f2)"
equal "scripts compiled by all workers" 1 "$(cut -d' ' -f3 client.* | sort -u)"
[ "$(cut -d' ' -f1 client.* | sort -u | wc -l)" -gt 1 ] || fail "one worker served all"

# A worker that dies with the semaphore in hand gives it back.
equal "the answer of a worker that was killed" "" "$(request die=1)"
equal "the count after it" $((requests + 3)) "$(request remove=1 | cut -d' ' -f2)"

kill -QUIT $master
wait $master || fail "php-fpm's end: $(cat error.log)"
nothing_left || fail "objects are left: $(objects)"
echo "$requests requests by $workers workers, one killed with the semaphore in hand"
