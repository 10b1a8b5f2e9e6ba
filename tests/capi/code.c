/* Code in a segment: it runs, or the reason why it can't has the text (argument). */
#include "capi.h"
#include <dlfcn.h>

#ifdef __aarch64__
static const unsigned char code[] = {0xc0, 0x03, 0x5f, 0xd6}; /* ret */
#else
static const unsigned char code[] = {0xc3}; /* ret */
#endif

int main(int count, char **arguments) {
    int segment = shmget(IPC_PRIVATE, 4096, 0700);
    char *at = shmat(segment, NULL, 0);
    CHECK(segment != -1 && at != (char *)-1);
    memcpy(at, code, sizeof code);
    __builtin___clear_cache(at, at + sizeof code);
    if (count == 1) {
        void (*run)(void);
        void *there = shmat(segment, NULL, SHM_EXEC | SHM_RDONLY);
        CHECK(there != (void *)-1);
        *(void **)&run = there;
        run();
    } else {
        const char *(*last_error)(void);
        *(void **)&last_error = dlsym(RTLD_DEFAULT, "vshm_last_error");
        FAILS(shmat(segment, NULL, SHM_EXEC | SHM_RDONLY), EACCES);
        CHECK(last_error != NULL && strstr(last_error(), arguments[1]) != NULL);
    }
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    return 0;
}
