# Takes a semaphore with SEM_UNDO, and keeps it.
use strict;
use warnings;

my $set = semget(0x5252, 1, 01600) // die "semget: $!";
semctl($set, 0, 16, 1) // die;
semop($set, pack("s!3", 0, -1, 010000)) or die "semop: $!";    # SEM_UNDO
sleep 1000;
