#!/usr/bin/perl
# What containers.sh runs in its containers; the argument says which part.
use strict;
use warnings;
use IPC::SysV qw(:all);

alarm 30;    # whoever waits in vain ends

sub must {
    my ($ok, $what) = @_;
    defined $ok && $ok or die "$what: $!\n";
}

my $key = 77;
my $queue = msgget($key, IPC_CREAT | 0600) // die "msgget: $!\n";
my $set = semget($key, 1, IPC_CREAT | 0600) // die "semget: $!\n";
my $segment = shmget($key, 4096, IPC_CREAT | 0600) // die "shmget: $!\n";

sub change {
    my ($by, $flags) = @_;
    must(semop($set, pack('s!3', 0, $by, $flags // 0)), 'semop');
}

my $rounds = 500;
my %parts = (
    ask => sub {
        for my $i (1 .. $rounds) {
            must(msgsnd($queue, pack('l! a*', 1, "question $i"), 0), 'msgsnd');
            must(msgrcv($queue, my $answer, 100, 2, 0), 'msgrcv');
            substr($answer, 8) eq "answer to question $i" or die "got $answer\n";
        }
        change(-1);    # until the other has written
        must(shmread($segment, my $text, 0, 5), 'shmread');
        $text eq 'hello' or die "read $text\n";
    },
    answer => sub {
        for my $i (1 .. $rounds) {
            must(msgrcv($queue, my $question, 100, 1, 0), 'msgrcv');
            must(msgsnd($queue, pack('l! a*', 2, 'answer to ' . substr $question, 8), 0), 'msgsnd');
        }
        must(shmwrite($segment, 'hello', 0, 5), 'shmwrite');
        change(1);
    },
    hold => sub {
        change(1);
        change(-1, SEM_UNDO);
        $| = 1;
        print "holds\n";
        sleep 30;
    },
    clean => sub {
        change(-1);
        must(msgctl($queue, IPC_RMID, 0), 'msgctl');
        must(semctl($set, 0, IPC_RMID, 0), 'semctl');
        must(shmctl($segment, IPC_RMID, 0), 'shmctl');
    },
);
$parts{ $ARGV[0] }->();
