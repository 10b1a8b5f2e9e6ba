# A new segment of 64 MiB is empty, whatever was where it lies.
my $segment = shmget(0, 64 << 20, 01600) // die "shmget: $!";
for my $at (0 .. 63) {
    shmread($segment, my $content, $at << 20, 1 << 20) or die "shmread: $!";
    $content =~ /[^\0]/ and die "something was left in it";
}
shmctl($segment, 0, 0) or die "shmctl: $!";
print "zeros\n";
