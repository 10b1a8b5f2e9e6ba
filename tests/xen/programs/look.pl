# Attaches a segment, and reads it until it can't.
use IPC::SharedMem;
my $segment = IPC::SharedMem->new(0x8889, 4096, 01600) // die "shmget: $!";
$segment->attach or die "shmat: $!";
$| = 1;
print "attached\n";
$segment->read(0, 8) while 1;
