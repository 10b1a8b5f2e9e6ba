/* What the programs of this directory say to each other, in whatever language they are written. */
#ifndef TASKS_H
#define TASKS_H

#define QUEUE 0x7461736b /* the queue's key */

enum {
    TASK = 1,   /* message type: a number in decimal, to be squared; "end": there are no more */
    RESULT = 2, /* message type: its square in decimal */
    LONGEST = 32
};

struct message {
    long type;
    char text[LONGEST];
};

#endif
