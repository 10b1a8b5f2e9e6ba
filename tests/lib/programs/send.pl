# Sends three messages of different types and sizes.
my $queue = msgget(0x1234, 01600); defined $queue or die "msgget: $!";
for my $size (5, 1000, 65536) {
    msgsnd($queue, pack("l! a*", $size, chr(65 + $size % 26) x $size), 0) or die "msgsnd $size: $!";
}
