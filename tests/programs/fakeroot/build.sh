#!/bin/sh
# What a package's build does under fakeroot: owners, devices, and archives that keep them.
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
