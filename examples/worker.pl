# As worker.c. Perl has these calls built in.
use strict;
use warnings;
use IPC::SysV qw(IPC_CREAT);

my ($key, $task, $result) = (0x7461736b, 1, 2);

my $queue = msgget($key, IPC_CREAT | 0600) // die "msgget: $!";
my $done  = 0;
while (1) {
    msgrcv($queue, my $message, 32, $task, 0) // die "msgrcv: $!";
    my (undef, $text) = unpack("l! a*", $message);
    last if $text eq "end";
    msgsnd($queue, pack("l! a*", $result, $text**2), 0) // die "msgsnd: $!";
    $done++;
}
print "Perl: $done tasks\n";
