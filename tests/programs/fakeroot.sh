#!/bin/bash
# fakeroot over System V queues: an ordinary user's chown, mknod and tar.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need fakeroot-sysv fakeroot
needs_sysv "${as_user[@]}" fakeroot-sysv true

"${as_user[@]}" "${on_vshmem[@]}" fakeroot-sysv -s saved sh "$here/fakeroot/build.sh" >got 2>err.log || {
    cat err.log got
    fail "fakeroot"
}
cat >expected <<'S'
again/tree directory 5:6 755 0:0
again/tree/file regular file 12:34 4755 0:0
again/tree/null character special file 0:0 644 1:3
again/tree/disk block special file 0:0 644 8:1
S
diff expected got || fail "owners, modes and devices after a round trip through tar"
equal "the archive's owner of a file" 12/34 \
    "$(tar --numeric-owner -tvf tree.tar tree/file | awk '{print $2}')"
equal "real owner" "$("${as_user[@]}" id -u)" "$(stat -c %u tree/file)"

# A second fakeroot takes up what the first one saved.
"${as_user[@]}" "${on_vshmem[@]}" fakeroot-sysv -i saved stat -c %u:%g tree/file >got 2>err.log || {
    cat err.log
    fail "fakeroot -i"
}
equal "owner in a second fakeroot" 12:34 "$(cat got)"
eventually "faked to remove its queues" nothing_left
echo "chown, mknod and tar round trip, 8 processes at once, saved and loaded"
