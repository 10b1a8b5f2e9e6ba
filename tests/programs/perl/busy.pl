# Makes, uses and removes IPC objects for some seconds.
my $queue = msgget(0x11, 01600) // die "msgget: $!";
my $end = time + 6;
while (time < $end) {
    for (1 .. 200) {
        msgsnd($queue, pack("l! a*", 1, "x" x (rand 3000)), 04000);
        msgrcv($queue, my $message, 4000, 0, 04000);
    }
    my $set = semget(0, 30, 01600) // die "semget: $!";
    semop($set, pack("s!6", 0, 1, 0x1000, 1, 1, 0)) // die "semop: $!";
    semctl($set, 0, 0, 0);
    my $segment = shmget(0, 5000, 01600) // die "shmget: $!";
    shmctl($segment, 0, 0);
}
