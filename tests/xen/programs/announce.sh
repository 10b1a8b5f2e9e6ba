#!/bin/sh
# announce GUEST POOL TEXT: says in XenStore that this domain gives GUEST a pool, whatever TEXT is
directory=data/vshmem/$1
xenstore-write "$directory/$2" "$3"
for at in "$directory" "$directory/$2"; do
    xenstore-chmod "$at" "n$(xenstore-read domid)" "r$1"
done
