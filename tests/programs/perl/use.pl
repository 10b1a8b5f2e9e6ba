# Uses a pool without end: one sends, one receives, one waits.
my $queue = msgget(0x11, 01600) // die "msgget: $!";
my $set = semget(0x12, 4, 01600) // die "semget: $!";
shmget(0x13, 1 << 20, 01600) // die "shmget: $!";
if (fork) {
    while (msgsnd($queue, pack("l! a*", 1, "x" x 100), 0)) { select(undef, undef, undef, 0.01) }
} elsif (fork) {
    while (msgrcv($queue, my $message, 200, 0, 0)) { select(undef, undef, undef, 0.001) }
} else {
    semop($set, pack("s!3", 3, -1, 0));
}
