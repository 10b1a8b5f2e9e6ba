# Waits for the third semaphore of a set, until the set is removed.
my $set = semget(0x6666, 3, 01600) // die "semget: $!";
semop($set, pack("s!3", 2, -4, 0)) or $!{EIDRM} or die "semop: $!";
