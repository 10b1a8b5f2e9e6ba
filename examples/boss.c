/* boss N WORKERS: gives the tasks 1 to N to whoever takes them, adds the results up, and tells so
 * many workers that there are no more. */
#include "tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

static void send(int queue, const char *text) {
    struct message message = {.type = TASK};
    strncpy(message.text, text, LONGEST - 1);
    if (msgsnd(queue, &message, strlen(message.text), 0) < 0) {
        perror("msgsnd");
        exit(1);
    }
}

int main(int argc, char **argv) {
    const long tasks = argc > 1 ? atol(argv[1]) : 1000;
    const int workers = argc > 2 ? atoi(argv[2]) : 1;
    const int queue = msgget(QUEUE, IPC_CREAT | 0600);
    if (queue < 0) {
        perror("msgget");
        return 1;
    }
    long long sum = 0;
    long given = 0;
    for (long taken = 0; taken < tasks; taken++) {
        /* Not all at once: a queue has an end. */
        for (; given < tasks && given < taken + 100; given++) {
            char text[LONGEST];
            snprintf(text, sizeof text, "%ld", given + 1);
            send(queue, text);
        }
        struct message result = {0};
        if (msgrcv(queue, &result, LONGEST - 1, RESULT, 0) < 0) {
            perror("msgrcv");
            return 1;
        }
        sum += atoll(result.text);
    }
    for (int i = 0; i < workers; i++) {
        send(queue, "end");
    }
    printf("the sum of the squares up to %ld is %lld\n", tasks, sum);
    return 0;
}
