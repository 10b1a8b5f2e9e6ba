#!/bin/bash
# vshmem top --web: a page that a browser shows, for whoever has its address and nobody else.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need_command top
need curl curl

"${on_vshmem[@]}" perl "$here/perl/use.pl" &
waits() { "$vshmem" ipcs --waiters --pool "$pool" 2>/dev/null | grep -q 'semaphore 3'; }
eventually "a program that waits" waits
"$vshmem" top --web --pool "$pool" >address 2>hint &
page=$!
trap 'kill "$page" 2>/dev/null || true' EXIT
has_address() { [ -s address ]; }
eventually "its address is printed" has_address
address=$(cat address)
grep -q '^http://127\.0\.0\.1:[0-9]*/?token=[0-9a-f]\{32\}$' address || fail "the address is $address"
site=${address%%/\?*}
status() { curl -s -o got -w '%{http_code}' "$@"; }
equal "the page" 200 "$(status "$address")"
equal "what it shows" 200 "$(status "$site/data${address#"$site"/}")"
/usr/bin/python3 -c '
import json, sys
told = json.load(open("got"))
(pool,) = told["pools"]
assert pool["pool"] == sys.argv[1] and pool["waiters"][0]["wanted"] and len(pool["counts"]) == 4
assert told["processors"] > 0 and "clusters" in told["machines"]
' "$pool" || fail "the data are $(head -c 500 got)"
for refused in "$site/" "$site/data" "$site/data?token=0" "${address%?}0x"; do
    equal "without the token, of $refused" 404 "$(status "$refused")"
done
equal "through a name of another site" 404 "$(status -H 'Host: evil.example' "$address")"
equal "to write" 405 "$(status -X POST "$address")"
if "$vshmem" top --web 0.0.0.0:0 --pool "$pool" 2>err.log; then fail "all of the network was served"; fi
grep -q 'loopback' err.log || fail "it says $(cat err.log)"

told="as text"
if command -v chromium >/dev/null; then
    told="in a browser"
    # Long enough for a second look, and what it complains of is on the error stream.
    chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir="$dir/profile" \
        --virtual-time-budget=4000 --dump-dom "$address" >dom 2>browser.log ||
        fail "the browser: $(cat browser.log)"
    if grep -q 'CONSOLE' browser.log; then fail "the browser says $(grep CONSOLE browser.log)"; fi
    shows() { grep -q "$1" dom || fail "the page does not show $2: $(head -c 3000 dom)"; }
    shows 'role="status" class="">at ' "the time"
    shows '<line ' "which kernel has the pool"
    shows '<td>[0-9]*@[^<]*</td><td>[^<]*</td><td>set [0-9]*</td>' "which process waits"
    shows '<td>semaphore 3 to let -1 be added</td>' "who waits for what"
    shows '<td>segment</td><td>0x00000013</td>' "the IPC objects"
    shows 'What the doctor has found' "findings"
    if grep -q '<td>undefined\|NaN' dom; then fail "the page has what is not there"; fi
fi
kill -INT "$page"
code=0
wait "$page" || code=$?
equal "ctrl-C ends it" 130 "$code"
"$vshmem" ipcrm --pool "$pool" --all
wait
echo "a page, $told, for those who have its address"
