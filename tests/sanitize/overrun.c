// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that is wrong: it has less room for a message than it tells msgrcv. Whoever watches
 * what the library writes must say so. */
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/msg.h>

int main(void) {
    struct {
        long type;
        char text[64];
    } sent = {1, "text"};
    struct {
        long type;
        char text[8];
    } room;
    int queue = msgget(IPC_PRIVATE, 0600);
    volatile size_t more = sizeof(sent.text);

    if (queue < 0 || msgsnd(queue, &sent, more, 0)) {
        perror("overrun");
        return 0;
    }
    printf("%zd bytes, unseen\n", msgrcv(queue, &room, more, 0, 0));
    return 0;
}
