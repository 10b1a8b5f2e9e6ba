# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# What a process of a machine leaves that is killed: the machine's front end clears it away, though nobody
# there looks, and others can't tell that it is dead.

need_machines
code "a process of a machine is killed" 137 vshmem run --vm vm0 -n 1 -- perl "$common/hold.pl" 0x7ead 3 kill
undone() { [ "$(on_host perl "$common/value.pl" 0x7ead)" = 0 ]; }
eventually "its SEM_UNDO is carried out, and the host sees it" undone
on_host perl -e 'semctl(semget(0x7ead, 1, 0), 0, 0, 0) || die $!'
