/* Of an input that is larger than what memory is to hold, the same part is read again and again. */
#ifndef PASSES_H
#define PASSES_H

#include <errno.h>
#include <stddef.h>

/* The part of `size` that is held: all of it, or HELD, of which it has to be a multiple. */
static inline size_t held_of(size_t size) {
    if (size <= HELD)
        return size;
    if (size % HELD) {
        errno = EINVAL;
        die("a size is a multiple of what is held");
    }
    return HELD;
}

#endif
