#!/usr/bin/perl
# strike.pl OVER SIGNAL SECONDS PATTERN: waits until a process runs here whose command line matches, then as
# long as said, and sends the signal to all of those. It says how many it has hit. It gives up when the file
# OVER is there. The pattern "all" stands for everything but the first process and this one, once vshmem runs.
use strict;
use warnings;
use Time::HiRes 'sleep';

my ($over, $signal, $seconds, $pattern) = @ARGV;

sub matching {
    my @found;
    for my $process (glob '/proc/[1-9]*') {
        my ($pid) = $process =~ /(\d+)/;
        next if $pid == $$;
        open my $in, '<', "$process/cmdline" or next;
        local $/;
        my $line = <$in> // next;
        push @found, $pid if $line =~ tr/\0/ /r =~ /$pattern/;
    }
    return @found;
}

my $all = $pattern eq 'all';
$pattern = '^\S*vshmem ' if $all;
until (matching) {
    exit if -e $over;
    sleep 0.002;
}
sleep $seconds;
print scalar(kill $signal, $all ? -1 : matching), "\n";
