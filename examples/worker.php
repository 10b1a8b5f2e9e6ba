<?php
// As worker.c, by the extension sysvmsg.
const KEY = 0x7461736b;
const TASK = 1;
const RESULT = 2;

$queue = msg_get_queue(KEY, 0600);
for ($done = 0;; $done++) {
    if (!msg_receive($queue, TASK, $type, 32, $text, false, 0, $error)) {
        exit("msgrcv: " . posix_strerror($error) . "\n");
    }
    if ($text === "end") {
        break;
    }
    msg_send($queue, RESULT, (string) ((int) $text ** 2), false, true, $error);
}
print "PHP: $done tasks\n";
