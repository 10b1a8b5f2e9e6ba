# allocate.pl SECONDS: makes IPC objects of all kinds and removes them again; some of its processes are killed meanwhile.
use strict;
use warnings;
my $end = time + shift;
sub must { my ($result, $what) = @_; defined $result or die "$what: $!\n"; return $result }
sub turn {
    my $set = must(semget(0, 1 + int(rand(60)), 01600), 'semget');
    my $segment = must(shmget(0, 1 + int(rand(40000)), 01600), 'shmget');
    my $queue = must(msgget(0, 01600), 'msgget');
    must(semop($set, pack('s!3', 0, 1, 0x1000)), 'semop');
    must(msgsnd($queue, pack('l! a*', 1, 'x' x rand(4000)), 0), 'msgsnd');
    must(shmwrite($segment, 'y', 0, 1), 'shmwrite');
    must(msgrcv($queue, my $text, 5000, 0, 0), 'msgrcv');
    must(semctl($set, 0, 0, 0), 'semctl');
    must(shmctl($segment, 0, 0), 'shmctl');
    must(msgctl($queue, 0, 0), 'msgctl');
}
my $turns = 0;
while (time < $end) {
    my $child = fork // die "fork: $!";
    if (!$child) {
        turn() while 1;
    }
    for (1 .. 20) { turn(); $turns++ }
    kill 'KILL', $child;
    waitpid $child, 0;
    ($? & 127) == 9 or die "a child has ended with $?\n";
}
print $turns > 0 ? "fine\n" : "nothing was done\n";
