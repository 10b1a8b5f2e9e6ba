# Waits for a semaphore.
my $set = semget(0x5555, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, -1, 0)) or die "semop: $!";
print "woken\n";
semctl($set, 0, 0, 0);
