# Sends to the queue, and waits for the semaphore.
my $queue = msgget(0x31, 01600) // die "msgget: $!";
msgsnd($queue, pack("l! a*", 1, "x"), 0) or die "msgsnd: $!";
my $set = semget(0x32, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, -1, 0));
