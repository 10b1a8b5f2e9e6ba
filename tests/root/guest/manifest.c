/* manifest.c: prints a line for each file below a directory: all that two copies of a tree must
 * have in common.
 *
 *   manifest DIRECTORY    kind, mode, owner, links, size, time, device, target, attributes, sum of
 * contents
 *
 * It runs on the host and in a machine; the texts are compared. Of files above 64 MiB only pages at
 * some places are read. What can't be read is said in its line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LARGE (64 << 20)
#define PAGE 4096
#define PLACES 64

static uint64_t sum(uint64_t so_far, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        so_far = (so_far ^ at[i]) * 0x100000001b3ull;
    return so_far;
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void attributes(const char *path) {
    static char names[65536], value[65536];
    ssize_t length = llistxattr(path, names, sizeof names);
    if (length <= 0)
        return;
    char *all[4096];
    size_t count = 0;
    for (char *name = names; name < names + length && count < 4096; name += strlen(name) + 1)
        all[count++] = name;
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 0; i < count; i++) {
        ssize_t size = lgetxattr(path, all[i], value, sizeof value);
        printf(" %s=%zd:%016llx", all[i], size,
               (unsigned long long)sum(1, value, size > 0 ? size : 0));
    }
}

static void contents(const char *path, off_t size) {
    static char bytes[1 << 16];
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf(" !%s", strerror(errno));
        return;
    }
    uint64_t all = 1;
    ssize_t got = 0;
    if (size <= LARGE) {
        while ((got = read(fd, bytes, sizeof bytes)) > 0)
            all = sum(all, bytes, got);
    } else {
        for (int i = 0; i <= PLACES && got >= 0; i++) {
            off_t at = i == PLACES ? size - PAGE : (off_t)(size / PAGE / PLACES) * i * PAGE;
            got = pread(fd, bytes, PAGE, at);
            if (got > 0)
                all = sum(all, bytes, got);
        }
    }
    if (got < 0)
        printf(" !%s", strerror(errno));
    else
        printf(" %016llx", (unsigned long long)all);
    close(fd);
}

static void show(const char *path, const char *name) {
    static char target[8192];
    struct stat stat;
    if (lstat(path, &stat)) {
        printf("%s !%s\n", name, strerror(errno));
        return;
    }
    int is_directory = S_ISDIR(stat.st_mode);
    int is_device = S_ISCHR(stat.st_mode) || S_ISBLK(stat.st_mode);
    printf("%s %o %u %u %lu %lld %lld.%09ld", name, stat.st_mode, stat.st_uid, stat.st_gid,
           is_directory ? 0ul : (unsigned long)stat.st_nlink,
           is_directory ? 0ll : (long long)stat.st_size, (long long)stat.st_mtim.tv_sec,
           stat.st_mtim.tv_nsec);
    if (is_device)
        printf(" %u:%u", major(stat.st_rdev), minor(stat.st_rdev));
    if (S_ISLNK(stat.st_mode)) {
        ssize_t length = readlink(path, target, sizeof target - 1);
        printf(" %zd:%016llx", length, (unsigned long long)sum(1, target, length > 0 ? length : 0));
    }
    attributes(path);
    if (S_ISREG(stat.st_mode))
        contents(path, stat.st_size);
    puts("");
}

static void walk(char *path, size_t length, size_t root) {
    DIR *directory = opendir(path);
    if (!directory) {
        printf("%s !%s\n", path + root, strerror(errno));
        return;
    }
    char **names = NULL;
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (!(count & (count - 1)))
            names = realloc(names, (count ? 2 * count : 1) * sizeof *names);
        /* The kind that the directory itself says. */
        char *name = malloc(strlen(entry->d_name) + 2);
        name[0] = '0' + entry->d_type;
        strcpy(name + 1, entry->d_name);
        names[count++] = name + 1;
    }
    closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        size_t more = strlen(names[i]);
        if (length + 1 + more < 8192) {
            path[length] = '/';
            strcpy(path + length + 1, names[i]);
            printf("%c ", names[i][-1]);
            show(path, path + root);
            if (names[i][-1] == '0' + DT_DIR)
                walk(path, length + 1 + more, root);
            path[length] = 0;
        }
        free(names[i] - 1);
    }
    free(names);
}

int main(int argc, char **argv) {
    static char path[16384];
    if (argc != 2)
        return 2;
    strncpy(path, argv[1], 4000);
    show(path, "");
    walk(path, strlen(path), strlen(path));
    return 0;
}
