#!/usr/bin/perl
# What else runs in this machine, which files lie about and which ports are open.
use strict;
use warnings;

my @found;
for my $process (glob '/proc/[0-9]*') {
    my $program = readlink "$process/exe" or next;
    push @found, "runs: $program\n" if $process ne "/proc/$$";
}
push @found, map { "file: $_\n" } glob '/tmp/* /tmp/.??* /dev/shm/*';
for my $table ('/proc/net/tcp', '/proc/net/tcp6') {
    open my $in, '<', $table or next;
    while (<$in>) {
        my (undef, $address, undef, $state) = split;
        push @found, "listens: $address\n" if $state eq '0A';
    }
}
print sort @found;
