#!/bin/bash
# fakeroot over System V queues: an ordinary user's chown, mknod and tar.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need fakeroot-sysv fakeroot
needs_sysv "${as_user[@]}" fakeroot-sysv true

cat >build <<'S'
set -eu
test "$(id -u)" = 0
mkdir tree
echo secret >tree/file
chown 12:34 tree/file
chmod 4755 tree/file
mknod tree/null c 1 3
mknod tree/disk b 8 1
ln tree/file tree/link
chown -h 5:6 tree
# Several processes talk to the daemon at once.
for i in 1 2 3 4 5 6 7 8; do
    (for j in 1 2 3 4 5; do : >"tree/$i.$j"; chown "$i:$j" "tree/$i.$j"; done) &
done
wait
for i in 1 2 3 4 5 6 7 8; do
    for j in 1 2 3 4 5; do test "$(stat -c %u:%g "tree/$i.$j")" = "$i:$j"; done
done
test "$(stat -c '%u:%g %a %h' tree/link)" = "12:34 4755 2"
tar cf tree.tar tree
mkdir again
tar xpf tree.tar -C again
stat -c '%n %F %u:%g %a %t:%T' again/tree again/tree/file again/tree/null again/tree/disk
S
"${as_user[@]}" "${on_vshmem[@]}" fakeroot-sysv -s saved sh build >got 2>err.log || {
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
equal "the archive's owner of a file" 12/34 "$(tar --numeric-owner -tvf tree.tar tree/file | awk '{print $2}')"
equal "real owner" "$("${as_user[@]}" id -u)" "$(stat -c %u tree/file)"

# A second fakeroot takes up what the first one saved.
"${as_user[@]}" "${on_vshmem[@]}" fakeroot-sysv -i saved stat -c %u:%g tree/file >got 2>err.log || {
    cat err.log
    fail "fakeroot -i"
}
equal "owner in a second fakeroot" 12:34 "$(cat got)"
within 10 "faked to remove its queues" nothing_left
echo "chown, mknod and tar round trip, 8 processes at once, saved and loaded"
