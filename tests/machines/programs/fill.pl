# fill.pl [stay]: makes a segment of 64 MiB, fills it, and says so; removes it when it is told.
my $size = 64 << 20;
my $segment = shmget(0, $size, 01600) // die "shmget: $!";
for my $at (0 .. 63) { shmwrite($segment, "x" x (1 << 20), $at << 20, 1 << 20) or die "shmwrite: $!" }
$| = 1;
print "full\n";
<STDIN>;
shmctl($segment, 0, 0) or die "shmctl: $!";
sleep 3600 if @ARGV;
