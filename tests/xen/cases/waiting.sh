# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A thread that waits in one domain is woken by another domain through the event channel, also between guests.
need vm0 vm1
[ -c /dev/vshmem-xen/work ] || serve work 8M vm0,vm1
joined vm0 vm1
have work vm0 vm1

rings() { # rings NAME: how many event-channel interrupts of the pool its kernel has had
    ask "$1" "awk '/vshmem-xen/ { print \$2 }' /proc/interrupts"
}
before=$(rings vm1)
ask vm1 "($(on_pool work "perl wait.pl")) >/tmp/waited 2>&1 &"
eventually "somebody waits in vm1, as vm0 sees" ask vm0 \
    'vshmem ipcs --waiters --pool work | grep -q "@vm1 .*alive .*semaphore 0"'
# System call 16 is ioctl: the thread sleeps in the driver. A nap would be clock_nanosleep.
eventually "it sleeps in the driver, rather than naps" ask vm1 \
    'grep -q "^16 " "/proc/$(pidof perl)/syscall"'
ask vm0 "$(on_pool work "perl -e 'semop(semget(0x5555, 1, 0) // die, pack(\"s!3\", 0, 1, 0)) or die'")"
eventually "it goes on when vm0 lets it" ask vm1 'grep -qx woken /tmp/waited'
after=$(rings vm1)
if [ "${after:-0}" -gt "${before:-0}" ]; then
    passed "vm1 was rung by its event channel: $before, then $after interrupts"
else
    failed "vm1 was rung by its event channel" "interrupts: $before, then $after"
fi
