# Makes every kind of call on a pool in which anything may stand. How they end does not matter, but that they do.
use IPC::SysV qw(IPC_CREAT IPC_NOWAIT IPC_RMID IPC_STAT);
for my $key (1 .. 25) {
    my $set = semget($key, 3, 0600 | IPC_CREAT);
    if (defined $set) {
        semop($set, pack("s!3", $_, 1, 0x1000 | IPC_NOWAIT)) for 0 .. 2;
        semop($set, pack("s!3", 0, -1, IPC_NOWAIT));
        semctl($set, 0, IPC_STAT, my $status = "");
        semctl($set, 0, IPC_RMID, 0) if $key % 5 == 0;
    }
    my $segment = shmget($key, 9000, 0600 | IPC_CREAT);
    if (defined $segment) {
        shmwrite($segment, "x" x 9000, 0, 9000);
        shmread($segment, my $text, 0, 9000);
        shmctl($segment, IPC_RMID, 0) if $key % 5 == 0;
    }
    my $queue = msgget($key, 0600 | IPC_CREAT);
    if (defined $queue) {
        msgsnd($queue, pack("l! a*", 1, "y" x 100), IPC_NOWAIT) for 1 .. 3;
        msgrcv($queue, my $message, 8192, 0, IPC_NOWAIT);
        msgctl($queue, IPC_RMID, 0) if $key % 5 == 0;
    }
}
