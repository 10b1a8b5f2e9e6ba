/* System V calls that several benchmarks need; each ends the program on an error. */
#include "bench.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

int make_semaphores(int count, int mode) {
    int id = semget(IPC_PRIVATE, count, IPC_CREAT | mode);
    if (id < 0)
        die("semget");
    return id;
}

void remove_semaphores(int id) {
    if (semctl(id, 0, IPC_RMID) != 0)
        die("semctl IPC_RMID");
}

void sem_add(int id, int number, int delta, int flags) {
    struct sembuf op = {
        .sem_num = (unsigned short)number, .sem_op = (short)delta, .sem_flg = (short)flags};
    while (semop(id, &op, 1) != 0)
        if (errno != EINTR)
            die("semop");
}

int make_queue(int mode) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | mode);
    if (id < 0)
        die("msgget");
    return id;
}

void remove_queue(int id) {
    if (msgctl(id, IPC_RMID, NULL) != 0)
        die("msgctl IPC_RMID");
}
