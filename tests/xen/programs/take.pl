# Waits for the semaphore that hold.pl has, and prints the time when it got it.
my $set = semget(0x9999, 1, 0600) // die "semget: $!";
semop($set, pack("s!3", 0, -1, 0)) or die "P: $!";
print time, "\n";
semop($set, pack("s!3", 0, 1, 0)) or die "V: $!";
