/* More processes than a small pool has room for: the others are told, nobody is harmed, and room
 * comes back. */
#include "capi.h"

enum { CROWD = 400 };

int main(void) {
    int set = semget(IPC_PRIVATE, 2, 0600);
    CHECK(set >= 0);
    for (int round = 0; round < 2; round++) {
        int go[2], told[2];
        CHECK(pipe(go) == 0 && pipe(told) == 0);
        pid_t children[CROWD];
        for (int i = 0; i < CROWD; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0);
            if (children[i] == 0) {
                char c;
                int served = semop(set, OP(0, 1, SEM_UNDO), 1) == 0;
                CHECK(served || errno == ENOSPC || errno == ENOMEM);
                CHECK(write(told[1], served ? "y" : "n", 1) == 1 && close(go[1]) == 0);
                CHECK(read(go[0], &c, 1) == 0);
                _exit(0);
            }
        }
        int served = 0;
        for (int i = 0; i < CROWD; i++) {
            char c;
            CHECK(read(told[0], &c, 1) == 1);
            served += c == 'y';
        }
        printf("%d of %d were served\n", served, CROWD);
        fflush(stdout);
        CHECK(served >= 32 && served < CROWD);
        GIVES(semctl(set, 0, GETVAL), served);
        CHECK(close(go[1]) == 0);
        for (int i = 0; i < CROWD; i++)
            wait_for_success(children[i]);
        GIVES(semctl(set, 0, GETVAL), 0);
        close(go[0]);
        close(told[0]);
        close(told[1]);
    }
    return 0;
}
