/* What a program opens and looks up while it runs: `dlfcn taken|kept FOLDER` or, with opened/next.c
 * preloaded before or after the library, `dlfcn before|after FOLDER`. */
#include "capi.h"
#include <dlfcn.h>
#include <stdbool.h>

static const char *folder;

static void *look_up(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    if (!found)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(found != NULL);
    return found;
}

static const char *path(const char *file) {
    static char text[4096];
    snprintf(text, sizeof text, "%s/%s", folder, file);
    return text;
}

static void *opened(void *library) {
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    return library;
}

static bool is_of_pool(int id) { return id >= 1 << 30; }

/* Does a library's queue live in the pool? */
static bool leads_to_pool(void *library) {
    int (*make)(void), (*remove_it)(int);
    *(void **)&make = look_up(library, "plugin_make");
    *(void **)&remove_it = look_up(library, "plugin_remove");
    int id = make();
    CHECK(id != -1);
    CHECK(remove_it(id) == 0);
    return is_of_pool(id);
}

static void deepbind(bool taken) {
    void *plugin = opened(dlopen(path("plugin.so"), RTLD_NOW | RTLD_DEEPBIND));
    CHECK(leads_to_pool(plugin) == taken);
    plugin = opened(dlmopen(LM_ID_BASE, path("plugin-too.so"), RTLD_NOW | RTLD_DEEPBIND));
    CHECK(leads_to_pool(plugin) == taken);
    /* In a name space of its own a library has its own libc, and nothing that was preloaded. */
    plugin = opened(dlmopen(LM_ID_NEWLM, path("plugin.so"), RTLD_NOW | RTLD_DEEPBIND));
    CHECK(!leads_to_pool(plugin));
    void *its_msgget = look_up(plugin, "msgget");
    CHECK(its_msgget != dlsym(RTLD_DEFAULT, "msgget"));
    CHECK(dlopen(path("missing.so"), RTLD_NOW | RTLD_DEEPBIND) == NULL);
    CHECK(strstr(dlerror(), "missing.so") != NULL);
}

/* Whose RUNPATH counts depends on who calls. */
static void origin(void) {
    void *(*open_by_name)(const char *, int), *(*open_in)(Lmid_t, const char *, int);
    void *library = opened(dlopen(path("origin.so"), RTLD_NOW));
    *(void **)&open_by_name = look_up(library, "origin_open");
    *(void **)&open_in = look_up(library, "origin_open_in");
    CHECK(dlopen("found.so", RTLD_NOW) == NULL);
    CHECK(dlclose(opened(open_in(LM_ID_BASE, "found.so", RTLD_NOW | RTLD_DEEPBIND))) == 0);
    CHECK(dlopen("found.so", RTLD_NOW) == NULL);
    CHECK(dlclose(opened(open_by_name("found.so", RTLD_NOW))) == 0);
    CHECK(dlopen("found.so", RTLD_NOW) == NULL);
    CHECK(dlclose(opened(open_by_name("found.so", RTLD_NOW | RTLD_DEEPBIND))) == 0);
}

static bool is_libcs(void *function, void *libc) {
    Dl_info here, there;
    CHECK(dladdr(function, &here) && dladdr(look_up(libc, "getpid"), &there));
    return here.dli_fbase == there.dli_fbase;
}

/* What a foreign function interface does. */
static void handle_of_libc(bool taken) {
    static const char *const names[] = {
        "shmget", "shmat",  "shmdt",    "shmctl",  "semget",  "semop",
        "semctl", "msgget", "mlockall", "madvise", "mremap",  "semtimedop",
        "msgsnd", "msgrcv", "msgctl",   "syscall", "unshare",
    };
    void *libc = opened(dlopen("libc.so.6", RTLD_NOW));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *ours = look_up(RTLD_DEFAULT, names[i]);
        CHECK(!is_libcs(ours, libc));
        CHECK((look_up(libc, names[i]) == ours) == taken);
        CHECK(is_libcs(look_up(libc, names[i]), libc) == !taken);
    }
    static const char *const others[] = {"malloc", "sem_post", "msync", "strerror", "exit"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(is_libcs(look_up(libc, others[i]), libc));
    CHECK(dlsym(libc, "shmgets") == NULL);
    CHECK(strstr(dlerror(), "shmgets") != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "no_such_name") == NULL);
    CHECK(strstr(dlerror(), "no_such_name") != NULL);
}

/* With another interposer between the program and the library, or the library and libc. */
static void chain(bool before) {
    int (*calls)(void), (*detach)(const void *);
    *(void **)&calls = look_up(RTLD_DEFAULT, "next_calls");
    void *libc = opened(dlopen("libc.so.6", RTLD_NOW));
    *(void **)&detach = look_up(libc, "shmdt");
    CHECK(!is_libcs(look_up(libc, "shmdt"), libc));
    int id = shmget(IPC_PRIVATE, 100, 0600);
    CHECK(is_of_pool(id));
    char *first = shmat(id, NULL, 0), *second = shmat(id, NULL, 0);
    CHECK(first != (void *)-1 && second != (void *)-1);
    GIVES(shmdt(first), 0);
    CHECK(calls() == before);
    GIVES(detach(second), 0);
    CHECK(calls() == before);
    GIVES(shmctl(id, IPC_RMID, NULL), 0);
    /* The other one's own function is its own, for who asks it. */
    void *next = opened(dlopen(path("next.so"), RTLD_NOW));
    CHECK(look_up(next, "shmdt") != look_up(libc, "shmdt"));
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    folder = arguments[2];
    if (strcmp(arguments[1], "before") == 0 || strcmp(arguments[1], "after") == 0) {
        chain(strcmp(arguments[1], "before") == 0);
        return 0;
    }
    bool taken = strcmp(arguments[1], "taken") == 0;
    CHECK(taken || strcmp(arguments[1], "kept") == 0);
    deepbind(taken);
    origin();
    handle_of_libc(taken);
    return 0;
}
