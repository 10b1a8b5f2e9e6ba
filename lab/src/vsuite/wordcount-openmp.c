/* How often each word is in a text, in OpenMP: each thread has a table of its own, and they are put
 * together. A large text is the same one again and again. */
#include "dwarf.h"

#ifndef HELD
#define HELD 20000000
#endif
#include "passes.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 8, PLACES = 4096, DIFFERENT = 1024 };

struct word {
    char letters[LONGEST];
    uint64_t count;
};

static char *text;
static size_t length, passes;
static struct word words[PLACES];

/* Words are numbers with a letter before them; each is found again in the answer by its number. */
void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    const size_t held = held_of(size);
    passes = held ? size / held : 0;
    text = own_memory(held * LONGEST + 1);
    length = 0;
    for (size_t i = 0; i < held; i++) {
        unsigned number = (uint32_t)i * 2654435761U >> 22;
        length += (size_t)sprintf(text + length, "w%u ", number % DIFFERENT);
    }
}

/* The place of a word in a table that is never full. */
static struct word *place_of(struct word *table, const char letters[LONGEST]) {
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < LONGEST && letters[i]; i++)
        hash = (hash ^ (unsigned char)letters[i]) * 16777619U;
    for (size_t i = hash % PLACES;; i = (i + 1) % PLACES)
        if (table[i].count == 0 || memcmp(table[i].letters, letters, LONGEST) == 0)
            return &table[i];
}

static void add(struct word *table, const char letters[LONGEST], uint64_t count) {
    struct word *word = place_of(table, letters);
    memcpy(word->letters, letters, LONGEST);
    word->count += count;
}

/* A word belongs to the part in which it begins. */
static void count(struct part part, struct word *table) {
    size_t i = part.from;
    while (i > 0 && i < part.to && text[i - 1] != ' ')
        i++;
    while (i < part.to) {
        char letters[LONGEST] = {0};
        size_t letter = 0;
        for (; i < length && text[i] != ' '; i++)
            if (letter < LONGEST)
                letters[letter++] = text[i];
        if (letter > 0)
            add(table, letters, 1);
        i++;
    }
}

void dwarf_run(void) {
    memset(words, 0, sizeof words);
#pragma omp parallel
    {
        struct word *table = own_memory(PLACES * sizeof *table);
        for (size_t i = 0; i < passes; i++)
            count(part_of(length, omp_get_thread_num(), omp_get_num_threads()), table);
#pragma omp critical
        for (size_t i = 0; i < PLACES; i++)
            if (table[i].count > 0)
                add(words, table[i].letters, table[i].count);
        free(table);
    }
}

double dwarf_answer(void) {
    double values[DIFFERENT] = {0};
    for (size_t i = 0; i < PLACES; i++)
        if (words[i].count > 0)
            values[atoi(words[i].letters + 1) % DIFFERENT] += (double)words[i].count;
    return checksum(values, DIFFERENT);
}

void dwarf_tear_down(void) { free(text); }
