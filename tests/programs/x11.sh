#!/bin/bash
# X11: the MIT-SHM extension between Xvfb, whose screen is a segment too, and its clients.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need Xvfb xvfb
need x11perf x11-apps
python=/usr/bin/python3
need $python python3
need ipcrm util-linux

end_server() {
    [ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
}
trap end_server EXIT
"${as_user[@]}" "${on_vshmem[@]}" Xvfb -displayfd 3 -shmem -screen 0 1024x768x24 -nolisten tcp \
    3>display 2>server.log &
server=$!
has_display() { [ -s display ]; }
eventually "Xvfb's display number" has_display
DISPLAY=:$(cat display)
export DISPLAY
equal "the screen" "segments 1, sets 0, queues 0" "$(objects)"

"${as_user[@]}" "${on_vshmem[@]}" $python "$here/shm_image.py" >image.log 2>&1 || {
    cat image.log server.log
    fail "images by MIT-SHM"
}
needs_sysv "${as_user[@]}" $python "$here/shm_image.py"
"${as_user[@]}" "${on_vshmem[@]}" x11perf -repeat 1 -time 1 -shmput500 >perf.log 2>&1 || {
    cat perf.log
    fail x11perf
}
equal "x11perf's measurements" 1 "$(grep -c ' reps @ .*/sec' perf.log)"
equal "after the clients" "segments 1, sets 0, queues 0" "$(objects)"
kill "$server"
wait "$server" || true
server=
# Xvfb leaves its screen behind, for others to read by the id that it printed.
screen=$(sed -n 's/^screen 0 shmid \([0-9]*\)$/\1/p' server.log)
[ -n "$screen" ] || fail "Xvfb prints no shmid: $(cat server.log)"
"${as_user[@]}" "${on_vshmem[@]}" ipcrm -m "$screen"
nothing_left || fail "objects are left: $(objects)"
echo "Xvfb -shmem, $(cat image.log), x11perf's ShmPutImage"
