# rule.pl make|look|remove: makes or looks at a queue as user 1000, or removes it as root; prints what came of it.
my $do = shift;
defined semget(0, 1, 01600) or die "the pool: $!";
$> = 1000 if $do ne 'remove';
my $queue = msgget(0x3333, $do eq 'make' ? 01600 : 0) // die "msgget: $!";
my $status;
print "$do: ", (msgctl($queue, $do eq 'remove' ? 0 : 2, $status) ? 'yes' : $!), "\n";
