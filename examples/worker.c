/* worker: takes tasks from the queue and sends results, until it is told that there are no more. */
#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

int main(void) {
    const int queue = msgget(QUEUE, IPC_CREAT | 0600);
    if (queue < 0) {
        perror("msgget");
        return 1;
    }
    for (long done = 0;; done++) {
        struct message message = {0};
        if (msgrcv(queue, &message, LONGEST - 1, TASK, 0) < 0) {
            perror("msgrcv");
            return 1;
        }
        if (strcmp(message.text, "end") == 0) {
            printf("C: %ld tasks\n", done);
            return 0;
        }
        const long long task = atoll(message.text);
        message.type = RESULT;
        snprintf(message.text, LONGEST, "%lld", task * task);
        if (msgsnd(queue, &message, strlen(message.text), 0) < 0) {
            perror("msgsnd");
            return 1;
        }
    }
}
