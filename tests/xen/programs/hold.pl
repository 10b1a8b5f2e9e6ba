# Takes a semaphore with SEM_UNDO, and keeps it.
my $set = semget(0x9999, 1, 0600) // die "semget: $!";
semop($set, pack("s!3", 0, -1, 0x1000)) or die "P: $!";
$| = 1;
print "held\n";
sleep 3600;
