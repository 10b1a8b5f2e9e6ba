/* Calls of which VSHMEM_LOG tells. With VSHMEM_KEYS=1-9. */
#include "capi.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

int main(void) {
    struct {
        long type;
        char text[1];
    } message;
    int queue = msgget(7, IPC_CREAT | 0600);
    if (queue < 0) {
        return 1;
    }
    FAILS(msgrcv(queue, &message, 1, 0, IPC_NOWAIT), ENOMSG);
    GIVES(msgctl(queue, IPC_RMID, NULL), 0);
    FAILS(msgctl(queue, IPC_RMID, NULL), EINVAL);
    FAILS(msgctl(queue, IPC_RMID, NULL), EINVAL);
    int of_kernel = semget(IPC_PRIVATE, 1, 0600);
    CHECK(of_kernel >= 0);
    GIVES(semctl(of_kernel, 0, IPC_RMID), 0);
    return 0;
}
