// Where memory lies: the share of its pages that are on another node of memory than node 0, as `move_pages` tells.
#pragma once

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul

// Pages that are asked for at a time.
#define AT_ONCE 1024ul

// The pages of a stretch that are there, and of them those on another node than node 0.
struct pages {
    size_t there, slow;
};

static struct pages pages_of(char *memory, size_t bytes) {
    static void *pages[AT_ONCE];
    static int nodes[AT_ONCE];
    struct pages found = {0, 0};
    for (size_t done = 0, all = bytes / PAGE; done < all; done += AT_ONCE) {
        size_t count = all - done < AT_ONCE ? all - done : AT_ONCE;
        for (size_t at = 0; at < count; at++) pages[at] = memory + (done + at) * PAGE;
        if (syscall(SYS_move_pages, 0, count, pages, NULL, nodes, 0)) exit(1);
        for (size_t at = 0; at < count; at++) found.there += nodes[at] >= 0, found.slow += nodes[at] > 0;
    }
    return found;
}
