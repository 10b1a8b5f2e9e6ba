# tell.pl TEXT...: sends messages to a queue.
my $queue = msgget(0x4711, 01600) // die "msgget: $!\n";
msgsnd($queue, pack("l! a*", 1, $_), 0) or die "msgsnd: $!\n" for @ARGV;
