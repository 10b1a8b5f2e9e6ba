# Waits for a message, and prints it.
my $queue = msgget(0x7070, 01600) // die "msgget: $!";
$| = 1;
print "waits\n";
msgrcv($queue, my $message, 64, 0, 0) or die "msgrcv: $!";
print substr($message, length pack("l!", 0)), "\n";
