# Has changed a semaphore and waits for a message when its pool is taken away; says what calls say then.
$| = 1;
my $set = semget(0x4712, 1, 01600) // die "semget: $!\n";
semop($set, pack("s!3", 0, 5, 0x1000)) or die "semop: $!\n";    # SEM_UNDO
my $queue = msgget(0x4713, 01600) // die "msgget: $!\n";
print "waits\n";
msgrcv($queue, my $text, 64, 0, 0) and die "a message\n";
print "woken: $!\n";
msgsnd($queue, pack("l! a*", 1, "x"), 0) and die "sent\n";
print "new call: $!\n";
semop($set, pack("s!3", 0, 1, 0)) and die "semop succeeded\n";
print "semaphore: $!\n";
