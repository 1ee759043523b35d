/* Reads or writes random words of memory of which some granules are hotter than others, and writes how often it accessed each.
 *
 *     heat MIB SECONDS small|huge|mixed quarter|two|skewed|moving|phases|write FILE
 *
 * quarter: the second quarter has nine of ten accesses, and its part of the rest. write: the same, all of them writes. two: the
 * second quarter has eight times as many as the fourth, the others none. skewed: the n-th hottest granule has 1/n of the hottest.
 * moving: a window of an eighth passes through in eight seconds, again and again. phases: the hot quarter is the third, first,
 * fourth, second, two seconds each. Granules are of 4 MiB; of mixed pages every other 32 MiB are huge ones. The memory is touched once
 * first. FILE gets granule,accesses. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define GRANULE (4ul << 20)
#define STRETCH (32ul << 20)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    size_t bytes = strtoul(words[1], 0, 10) << 20, granules = bytes / GRANULE;
    double seconds = atof(words[2]);
    const char *pages = words[3], *shape = words[4];
    char *all = mmap(0, bytes + STRETCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || granules < 8) return 1;
    char *memory = (char *)(((uintptr_t)all + STRETCH - 1) & ~(STRETCH - 1));
    /* It is a region of its own, which begins with a granule. */
    if (memory > all) munmap(all, memory - all);
    munmap(memory + bytes, all + STRETCH - memory);
    for (size_t at = 0; at < bytes; at += STRETCH) {
        int huge = !strcmp(pages, "huge") || (!strcmp(pages, "mixed") && at / STRETCH % 2);
        madvise(memory + at, bytes - at < STRETCH ? bytes - at : STRETCH, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    memset(memory, 1, bytes);
    uint64_t *accesses = calloc(granules, sizeof *accesses), sum = 0;
    size_t *order = malloc(granules * sizeof *order);
    double *reach = malloc(granules * sizeof *reach), total = 0;
    for (size_t at = 0; at < granules; at++) {
        order[at] = at;
        reach[at] = total += 1.0 / (at + 1);
    }
    for (size_t at = granules; at-- > 1;) {
        size_t other = draw() % (at + 1), kept = order[at];
        order[at] = order[other];
        order[other] = kept;
    }
    size_t quarter = bytes / 4;
    const int turns[] = {2, 0, 3, 1};
    int writes = !strcmp(shape, "write"), two = !strcmp(shape, "two"), skewed = !strcmp(shape, "skewed");
    int moving = !strcmp(shape, "moving"), phases = !strcmp(shape, "phases");
    double begun = now(), passed = 0;
    while ((passed = now() - begun) < seconds) {
        size_t hot = quarter, length = quarter;
        if (phases) hot = turns[(int)(passed / 2) % 4] * quarter;
        if (moving) hot = (size_t)(passed / 8 * (bytes - bytes / 8)) % (bytes - bytes / 8), length = bytes / 8;
        for (int at = 0; at < 2000; at++) {
            uint64_t word = draw(), aim = (word >> 40) % 100;
            size_t place;
            if (two) place = (word >> 40) % 9 < 8 ? quarter + draw() % quarter : 3 * quarter + draw() % quarter;
            else if (skewed) {
                double to = (draw() >> 11) * 0x1p-53 * total;
                size_t low = 0, high = granules - 1;
                while (low < high) {
                    size_t middle = (low + high) / 2;
                    if (reach[middle] < to) low = middle + 1;
                    else high = middle;
                }
                place = order[low] * GRANULE + draw() % GRANULE;
            } else place = aim < 90 ? hot + draw() % length : draw() % bytes;
            accesses[place / GRANULE]++;
            volatile uint64_t *it = (uint64_t *)(memory + (place & ~7ul));
            if (writes) *it = word;
            else sum += *it;
        }
    }
    FILE *out = fopen(words[5], "w");
    if (!out) return 1;
    fprintf(out, "granule,accesses\n");
    for (size_t at = 0; at < granules; at++) fprintf(out, "%zu,%lu\n", at, accesses[at]);
    return fclose(out) != 0 || sum == 42;
}
