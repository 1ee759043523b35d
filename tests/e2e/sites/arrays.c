/* Two functions fill an array each. One array is read all the time, the other hardly ever. With an argument the program runs itself once
 * more, in a child, and is done when that is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define HOT (32 * MIB)
#define COLD (96 * MIB)

__attribute__((noinline)) static char *make_hot(void) {
    char *hot = malloc(HOT);
    memset(hot, 1, HOT); /* hot */
    return hot + 1; /* so that it is no tail call, which would leave no frame of this function */
}

__attribute__((noinline)) static long *make_cold(void) {
    long *cold = malloc(COLD);
    for (size_t at = 0; at < COLD / sizeof *cold; at++)
        cold[at] = (long)at; /* cold */
    return cold;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    if (count > 1) {
        int status = 1;
        if (fork() == 0)
            return execl("/proc/self/exe", "arrays", (char *)NULL);
        return wait(&status) < 0 || status != 0;
    }
    (void)words;
    char *hot = make_hot();
    long *cold = make_cold();
    unsigned long sum = 0;
    size_t at = 0;
    for (double end = now() + 3; now() < end;) {
        for (size_t i = 0; i < HOT; i += 4096)
            sum += (unsigned long)hot[i - (i > 0)];
        for (int i = 0; i < 16; i++, at = (at + 4096) % COLD)
            sum += (unsigned long)cold[at / sizeof *cold];
    }
    return sum == 1;
}
