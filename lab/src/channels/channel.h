/* What the suite "rivals" measures: a way to get messages from process to process.
 *
 * A channel gives each process an inbox, to which the others send. Processes are numbered; 0 is the
 * one that measures. measure.c knows the work and no channel, a channel knows nothing of the work.
 * Every message is copied out of the sender's memory and into the receiver's, by all channels.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Processes at most: one that receives, and its senders. */
enum { PROCESSES = 5 };

struct channel {
    const char *name;
    const char *version; /* of what it is made with; null: of the kernel or the C library */
    /* Before there are other processes: makes what all of them inherit. Messages have up to `size`
     * bytes; the result says how many of them one message can hold. */
    size_t (*make)(int processes, size_t size);
    /* In each process, before the first message. May meet(). */
    void (*open)(int me);
    void (*send)(int to, const void *message, size_t size);
    /* From one's own inbox; `size` bytes are known to come. */
    void (*receive)(void *message, size_t size);
    /* In each process, after the last message, when all have met. */
    void (*close)(void);
    /* When the other processes have ended. */
    void (*remove)(void);
    int one_sender; /* an inbox has only one */
};

/* The channels of this program; the last is null. */
extern const struct channel *const channels[];

/* For channels that have nothing to do there. */
void nothing(void);
void nothing_of(int me);

/* How many processes there are. */
int process_count(void);

/* Waits until all processes are here. */
void meet(void);

/* Memory that all processes have, for what they must tell each other before they can talk. */
enum { BOARD_SIZE = 4096 };
char *board_of(int process);

/* What a channel calls that polls, each time it found nothing. `*times` is 0 at first. It spins for
 * about as long as a wake-up takes, then lets others run. */
void idle(unsigned *times);

/* Ends the program: this channel can't be had here. */
void missing(const char *why) __attribute__((noreturn));

/* Ends the program. */
void broken(const char *what, const char *why) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
