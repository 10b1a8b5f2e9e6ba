# given.pl make|use|refused: makes a segment and touches a part of it; touches all of it when there is no memory left; or is
# refused a segment that is too large, and removes another.
my $do = shift;
if ($do eq "make") {
    my $id = shmget(0x5e6, 8 << 20, 01600) // die $!;
    shmwrite($id, "x", 0, 1) or die $!;
} elsif ($do eq "use") {
    my $id = shmget(0x5e6, 0, 0) // die $!;
    shmwrite($id, "x" x (8 << 20), 0, 8 << 20) or die $!;
    shmctl($id, 0, 0) or die $!;
    print "kept\n";
} else {
    print defined shmget(0, 54 << 20, 01600) ? "yes" : "no", " ";
    my $id = shmget(0, 24 << 20, 01600) // die $!;
    print shmctl($id, 0, 0) ? "yes\n" : "no\n";
}
