/* Reads or writes random words of memory of which some granules are hotter than others, and writes how often it accessed each.
 *
 *     heat MIB SECONDS small|huge|mixed quarter|late|two|skewed|moving|phases|write FILE [PLACES]
 *
 * quarter: the second quarter has nine of ten accesses, and its part of the rest. late: the last quarter has, which is touched last.
 * write: as quarter, all of them writes. two: the second quarter has eight times as many as the fourth, the others none. skewed: the
 * n-th hottest granule has 1/n of the hottest. moving: a window of an eighth passes through in eight seconds, again and again. phases:
 * the hot quarter is the third, first, fourth, second, two seconds each. Granules are of 4 MiB; of mixed pages every other 32 MiB are
 * huge ones. The memory is touched once first. FILE gets granule,accesses. PLACES gets second,accesses,slow, four times a second: the
 * accesses since the last time, and those of them to other nodes of memory than node 0. Of each granule they are divided as its pages
 * lie, on the average of both times. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "places.h"

#define GRANULE (4ul << 20)
#define STRETCH (32ul << 20)
#define TELL_EACH_S 0.25

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

/* The share of a granule's pages that lie on another node than node 0. */
static double slow_share(char *granule) {
    struct pages found = pages_of(granule, GRANULE);
    return found.there ? (double)found.slow / found.there : 0;
}

/* What was told of a granule last. */
struct told {
    uint64_t accesses;
    double slow_share;
};

/* Where the accesses went since the last time. */
static void tell_places(FILE *places, double second, char *memory, size_t granules, const uint64_t *accesses, struct told *told) {
    double slow = 0;
    uint64_t all = 0;
    for (size_t at = 0; at < granules; at++) {
        uint64_t new = accesses[at] - told[at].accesses;
        double share = slow_share(memory + at * GRANULE);
        all += new, slow += new * (share + told[at].slow_share) / 2;
        told[at] = (struct told){accesses[at], share};
    }
    fprintf(places, "%.2f,%lu,%.0f\n", second, all, slow);
}

int main(int count, char **words) {
    if (count != 6 && count != 7) return 2;
    size_t bytes = strtoul(words[1], 0, 10) << 20, granules = bytes / GRANULE;
    double seconds = atof(words[2]);
    const char *pages = words[3], *shape = words[4];
    /* It is a region of its own, which begins with a granule, and has its size from the start. */
    char *all = mmap(0, bytes + STRETCH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || granules < 8) return 1;
    char *memory = (char *)(((uintptr_t)all + STRETCH - 1) & ~(STRETCH - 1));
    munmap(all, bytes + STRETCH);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(memory, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != memory) return 1;
    for (size_t at = 0; at < bytes; at += STRETCH) {
        int huge = !strcmp(pages, "huge") || (!strcmp(pages, "mixed") && at / STRETCH % 2);
        madvise(memory + at, bytes - at < STRETCH ? bytes - at : STRETCH, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    memset(memory, 1, bytes);
    uint64_t *accesses = calloc(granules, sizeof *accesses), sum = 0;
    struct told *told = calloc(granules, sizeof *told);
    FILE *places = count > 6 ? fopen(words[6], "w") : NULL;
    if (count > 6 && !places) return 1;
    if (places) fprintf(places, "second,accesses,slow\n");
    for (size_t at = 0; places && at < granules; at++) told[at].slow_share = slow_share(memory + at * GRANULE);
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
    double tell_at = TELL_EACH_S;
    while ((passed = now() - begun) < seconds) {
        if (places && passed >= tell_at) {
            tell_places(places, passed, memory, granules, accesses, told);
            tell_at = now() - begun + TELL_EACH_S;
        }
        size_t hot = strcmp(shape, "late") ? quarter : 3 * quarter, length = quarter;
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
    if (places) tell_places(places, passed, memory, granules, accesses, told);
    FILE *out = fopen(words[5], "w");
    if (!out) return 1;
    fprintf(out, "granule,accesses\n");
    for (size_t at = 0; at < granules; at++) fprintf(out, "%zu,%lu\n", at, accesses[at]);
    return fclose(out) != 0 || (places && fclose(places) != 0) || sum == 42;
}
