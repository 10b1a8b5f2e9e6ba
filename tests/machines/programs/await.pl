# await.pl KEY: waits until nothing holds a semaphore (hold.pl).
$| = 1;
my $set = semget(hex shift, 1, 0) // die "semget: $!";
print "waiting\n";
semop($set, pack("s!3", 0, 0, 0)) or die "semop: $!";
print "undone\n";
