# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets work
# What a process of a machine leaves that is killed: the machine's front end clears it away, though nobody there looks, and others can't
# tell that it is dead.

need_machines
# shellcheck disable=SC2016 # for perl
code "a process of a machine is killed" 137 vshmem run --vm vm0 -n 1 -- perl -e '
    $set = semget(0x7ead, 1, 01666) // die $!;
    semop($set, pack("s!3", 0, 3, 0x1000)) || die $!;
    kill 9, $$'

undone() {
    # shellcheck disable=SC2016 # for perl
    on_host perl -e '
        $set = semget(0x7ead, 1, 0) // die $!;
        exit(semctl($set, 0, 12, 0) != 0)'
}
eventually "its SEM_UNDO is carried out, and the host sees it" undone
on_host perl -e 'semctl(semget(0x7ead, 1, 0), 0, 0, 0) || die $!'
