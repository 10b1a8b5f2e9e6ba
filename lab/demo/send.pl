# Sends lines on a System V queue with perl's built-in calls, and nothing else.
use strict;
use warnings;

my ($key, @lines) = @ARGV;
my $IPC_CREAT = 01000;

my $queue = msgget(hex($key), $IPC_CREAT | 0600);
defined $queue or die "msgget: $!\n";
my $type = 0;
for my $line (@lines) {
    msgsnd($queue, pack("l! a*", ++$type, $line), 0) or die "msgsnd: $!\n";
    print "perl sent message $type: $line\n";
}
msgsnd($queue, pack("l! a*", ++$type, ""), 0) or die "msgsnd: $!\n";
