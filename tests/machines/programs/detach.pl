# Attaches a segment, and detaches it when it is told; after that it does nothing any more.
use IPC::SharedMem;
my $segment = IPC::SharedMem->new(0x5e9, 4096, 0600) // die "shmget: $!";
$segment->attach // die "shmat: $!";
$| = 1;
print "attached\n";
<STDIN>;
$segment->detach // die "shmdt: $!";
print "detached\n";
<STDIN>;
