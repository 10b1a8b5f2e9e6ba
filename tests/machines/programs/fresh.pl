# A segment's memory served the other machine before; it must be empty all the same.
my $size = 300000;
for my $round (1 .. 5) {
    my $segment = shmget(0, $size, 01600) // die "shmget: $!";
    my $content;
    shmread($segment, $content, 0, $size) or die "shmread: $!";
    $content =~ /[^\0]/ and die "something was left in it";
    shmwrite($segment, "x" x $size, 0, $size) or die "shmwrite: $!";
    shmctl($segment, 0, 0) or die "shmctl: $!";
}
