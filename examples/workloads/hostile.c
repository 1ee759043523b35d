// Works at random over memory that it knows byte by byte, with everything that a program may do to its memory, and fails if one byte is
// wrong. C, since no workload in Rust may have unsafe code, and this one needs mremap, madvise and O_DIRECT:
//
//     cc -O2 -pthread -o hostile examples/workloads/hostile.c
//     ./hostile --size 256MiB --seconds 10 --threads 4
//
// Each thread owns areas of memory, so that what a page must hold is known without locks. A page holds a pattern of its number and version;
// version 0 is zeros, as the kernel gives them. Every visit checks every byte of the page. All pages are checked in the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, HUGE_PAGES = 512, THREADS_MAX = 64, FILE_PAGES = 256, AREAS = 4, CHILD_PAGES = 64 };

static struct {
    uint64_t size, seconds, threads, seed, locked;
    const char *folder;
} options = {256 << 20, 10, 4, 1, 64 << 10, "."};

// Kinds of work; their names are what is reported.
enum { READ, WRITE, DROP, GROW, MOVE, REMAP, FORK, DIRECT, PIPE, COPY, HUGE, KINDS };
static const char *const names[KINDS] = {"reads",    "writes",       "drops",        "growths",    "moves",     "mappings made anew",
                                         "children", "direct reads", "system calls", "page moves", "huge pages"};
static atomic_ulong done[KINDS];
static atomic_ulong checked;

static uint64_t mix(uint64_t number) {
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
}

static uint64_t next(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15); }
static uint64_t below(uint64_t *state, uint64_t bound) { return ((unsigned __int128)next(state) * bound) >> 64; }

// Ends the whole program: what follows would only hide the first error.
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "hostile: seed %lu: %s\n", options.seed, text);
    _exit(1);
}

static void must(int is_done, const char *what) {
    if (!is_done) fail("%s: %s", what, strerror(errno));
}

// Memory of one thread. Pages keep their number and version when the area moves.
struct area {
    uint64_t id, pages, pages_max;
    char *start;
    uint32_t *versions;
};

static uint64_t first_word(const struct area *area, uint64_t page, uint32_t version) {
    return mix(mix(area->id << 40 | page) + version);
}

static void pattern(uint64_t *words, const struct area *area, uint64_t page, uint32_t version) {
    uint64_t word = first_word(area, page, version);
    for (int at = 0; at < WORDS; at++, word += 0x9e3779b97f4a7c15) words[at] = version ? word : 0;
}

// Whether these bytes are those of the page.
static void check(const void *bytes, const struct area *area, uint64_t page, uint32_t version, const char *who) {
    const volatile uint64_t *words = bytes;
    uint64_t word = first_word(area, page, version);
    for (int at = 0; at < WORDS; at++, word += 0x9e3779b97f4a7c15) {
        uint64_t found = words[at], wanted = version ? word : 0;
        if (found != wanted)
            fail("%s: area %lu at %p, page %lu, version %u, word %d: %016lx instead of %016lx", who, area->id, (void *)area->start, page, version,
                 at, found, wanted);
    }
    atomic_fetch_add_explicit(&checked, PAGE, memory_order_relaxed);
}

static char *at(const struct area *area, uint64_t page) { return area->start + page * PAGE; }

static void map(struct area *area) {
    area->start = mmap(0, area->pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(area->start != MAP_FAILED, "mmap");
    memset(area->versions, 0, area->pages_max * sizeof *area->versions);
}

struct worker {
    pthread_t thread;
    uint64_t number, random;
    struct area areas[AREAS];
    int file, pipe[2];
    void *buffer;
};

static void check_area(const struct area *area, const char *who) {
    for (uint64_t page = 0; page < area->pages; page++) check(at(area, page), area, page, area->versions[page], who);
}

static void write_page(struct area *area, uint64_t page) { pattern((uint64_t *)at(area, page), area, page, ++area->versions[page]); }

// A child reads pages of all areas as they were at its birth, writes some of its own copies, and exits.
static void fork_child(struct worker *worker) {
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        for (int number = 0; number < CHILD_PAGES; number++) {
            struct area *area = &worker->areas[below(&worker->random, AREAS)];
            uint64_t page = below(&worker->random, area->pages);
            check(at(area, page), area, page, area->versions[page], "child");
            if (number % 4 == 0) write_page(area, page);
        }
        _exit(0);
    }
    // The parent writes meanwhile, which the child must not see.
    for (int number = 0; number < 8; number++) {
        struct area *area = &worker->areas[below(&worker->random, AREAS)];
        write_page(area, below(&worker->random, area->pages));
    }
    int status;
    must(waitpid(child, &status, 0) == child, "waitpid");
    if (status != 0) fail("a child ended with status %#x", status);
}

// The file has patterns of an area of its own: number 0.
static const struct area of_file = {0};

// A read from the disk into a page, past the page cache where the file system lets it.
static void direct_read(struct worker *worker, struct area *area, uint64_t page) {
    uint64_t source = below(&worker->random, FILE_PAGES);
    ssize_t count = pread(worker->file, at(area, page), PAGE, source * PAGE);
    must(count == PAGE, "direct read");
    check(at(area, page), &of_file, source, 1, "direct read");
    write_page(area, page);
}

// A page goes through a pipe to another: system calls read from the one and write to the other.
static void through_pipe(struct worker *worker, struct area *area, uint64_t page) {
    struct iovec from[2] = {{at(area, page), 100}, {at(area, page) + 100, PAGE - 100}};
    must(writev(worker->pipe[1], from, 2) == PAGE, "writev");
    uint64_t to = below(&worker->random, area->pages);
    must(read(worker->pipe[0], at(area, to), PAGE) == PAGE, "read");
    check(at(area, to), area, page, area->versions[page], "pipe");
    if (to != page) write_page(area, to);
}

static void drop(struct worker *worker, struct area *area, uint64_t page) {
    uint64_t count = 1 + below(&worker->random, 8);
    if (count > area->pages - page) count = area->pages - page;
    must(madvise(at(area, page), count * PAGE, MADV_DONTNEED) == 0, "madvise DONTNEED");
    for (uint64_t number = 0; number < count; number++) area->versions[page + number] = 0;
}

// Grows or shrinks; the kernel may move the area for that.
static void resize(struct worker *worker, struct area *area) {
    uint64_t pages = area->pages_max / 2 + below(&worker->random, area->pages_max / 2) + 1;
    char *start = mremap(area->start, area->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    must(start != MAP_FAILED, "mremap that grows or shrinks");
    for (uint64_t page = pages; page < area->pages; page++) area->versions[page] = 0;
    area->start = start;
    // Pages that have come are used, or the size would not be.
    uint64_t page = area->pages;
    area->pages = pages;
    for (; page < pages; page++) write_page(area, page);
}

// Moves it to a place that another mapping had held.
static void move(struct area *area) {
    char *place = mmap(0, area->pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(place != MAP_FAILED, "mmap");
    char *start = mremap(area->start, area->pages * PAGE, area->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    must(start == place, "mremap that moves");
    area->start = start;
}

// Moves a part of an area away and back, which divides the mapping. What is left behind stays mapped: in a hole another thread could map.
static void move_part(struct worker *worker, struct area *area, uint64_t page) {
    uint64_t count = 1 + below(&worker->random, 16);
    if (count > area->pages - page) count = area->pages - page;
    char *place = mmap(0, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(place != MAP_FAILED, "mmap");
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    must(mremap(at(area, page), count * PAGE, count * PAGE, flags, place) == place, "mremap of a part");
    for (uint64_t number = 0; number < count; number++)
        check(place + number * PAGE, area, page + number, area->versions[page + number], "moved part");
    char *back = at(area, page);
    must(mremap(place, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, back) == back, "mremap of a part back");
}

static void huge(struct worker *worker, struct area *area, uint64_t page) {
    int advice = below(&worker->random, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    uint64_t count = area->pages - page < HUGE_PAGES ? area->pages - page : HUGE_PAGES;
    // A kernel without huge pages refuses, which is no error of anybody's.
    must(madvise(at(area, page), count * PAGE, advice) == 0 || errno == EINVAL, "madvise HUGEPAGE");
    for (uint64_t number = 0; number < count; number++) write_page(area, page + number);
}

static void step(struct worker *worker) {
    uint64_t dice = below(&worker->random, 10000);
    // The first area is the one that this program divides itself. The kernel resizes and moves no range that is more than one mapping
    // (EFAULT), so a program that divides no range may rely on it.
    int is_divided = dice >= 9800 && dice < 9920, is_whole = dice >= 9950;
    uint64_t number = is_divided ? 0 : is_whole ? 1 + below(&worker->random, AREAS - 1) : below(&worker->random, AREAS);
    struct area *area = &worker->areas[number];
    uint64_t page = below(&worker->random, area->pages);
    int kind;
    if (dice < 5000) {
        kind = READ;
        check(at(area, page), area, page, area->versions[page], "read");
    } else if (dice < 8500) {
        kind = WRITE;
        check(at(area, page), area, page, area->versions[page], "write");
        write_page(area, page);
    } else if (dice < 9000) {
        kind = DIRECT;
        direct_read(worker, area, page);
    } else if (dice < 9500) {
        kind = PIPE;
        through_pipe(worker, area, page);
    } else if (dice < 9800) {
        kind = DROP;
        drop(worker, area, page);
    } else if (dice < 9880) {
        kind = COPY;
        move_part(worker, area, page);
    } else if (dice < 9920) {
        kind = HUGE;
        huge(worker, area, page);
    } else if (dice < 9950) {
        kind = FORK;
        fork_child(worker);
    } else if (dice < 9970) {
        kind = GROW;
        resize(worker, area);
    } else if (dice < 9997) {
        kind = MOVE;
        move(area);
    } else {
        kind = REMAP;
        check_area(area, "before munmap");
        must(munmap(area->start, area->pages * PAGE) == 0, "munmap");
        map(area);
        for (page = 0; page < area->pages; page++) write_page(area, page);
    }
    atomic_fetch_add_explicit(&done[kind], 1, memory_order_relaxed);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    double end_s = now_s() + options.seconds;
    // All is written once, so that all of the size is needed.
    for (int number = 0; number < AREAS; number++)
        for (uint64_t page = 0; page < worker->areas[number].pages; page++) write_page(&worker->areas[number], page);
    while (now_s() < end_s)
        for (int steps = 0; steps < 16; steps++) step(worker);
    for (int number = 0; number < AREAS; number++) check_area(&worker->areas[number], "end");
    return 0;
}

// The file of the direct reads, without a name, so that nothing is left behind.
static int make_file(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/hostile-XXXXXX", options.folder);
    int file = mkostemp(path, O_CLOEXEC);
    if (file < 0) fail("cannot make a file in %s (--folder names another): %s", options.folder, strerror(errno));
    uint64_t words[WORDS];
    for (int page = 0; page < FILE_PAGES; page++) {
        pattern(words, &of_file, page, 1);
        must(pwrite(file, words, PAGE, page * PAGE) == PAGE, "write of the file");
    }
    must(fsync(file) == 0, "fsync");
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0) {
        must(errno == EINVAL, "open of the file");
        fprintf(stderr, "hostile: %s has no O_DIRECT: its reads go through the page cache\n", options.folder);
        direct = open(path, O_RDONLY | O_CLOEXEC);
        must(direct >= 0, "open of the file");
    }
    unlink(path);
    close(file);
    return direct;
}

static void start(struct worker *worker, uint64_t number, int file) {
    worker->number = number;
    worker->random = options.seed * 1000 + number;
    worker->file = file;
    must(pipe2(worker->pipe, O_CLOEXEC) == 0, "pipe");
    for (int own = 0; own < AREAS; own++) {
        struct area *area = &worker->areas[own];
        area->id = 1 + number * AREAS + own;
        area->pages = options.size / PAGE / options.threads / AREAS;
        if (area->pages < 64) fail("--size is too little: 64 pages are needed for each of %d areas of each thread", AREAS);
        // It grows to this, and shrinks to half of it: on average it has its share.
        area->pages_max = area->pages + area->pages / 3;
        area->versions = calloc(area->pages_max, sizeof *area->versions);
        must(area->versions != 0, "calloc");
        map(area);
    }
    must(pthread_create(&worker->thread, 0, work, worker) == 0, "pthread_create");
}

// Memory that is locked: it must be there at every moment, and right.
static void *lock_some(struct area *area) {
    area->id = UINT32_MAX;
    area->pages = area->pages_max = options.locked / PAGE;
    if (area->pages == 0) return 0;
    area->versions = calloc(area->pages, sizeof *area->versions);
    must(area->versions != 0, "calloc");
    map(area);
    if (mlock(area->start, area->pages * PAGE) != 0)
        fprintf(stderr, "hostile: cannot lock %lu bytes (ulimit -l): they are used unlocked\n", options.locked);
    for (uint64_t page = 0; page < area->pages; page++) write_page(area, page);
    return area->start;
}

static const struct {
    const char *name, *what;
    uint64_t *value;
} settings[] = {
    {"--size", "bytes of memory", &options.size},      {"--seconds", "how long it works", &options.seconds},
    {"--threads", "how many threads (1 to 64)", &options.threads}, {"--seed", "of the random numbers", &options.seed},
    {"--locked", "bytes more that are locked", &options.locked},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void help(void) {
    puts("Works at random over memory that it knows byte by byte: reads, writes, drops, grows, moves, unmaps and maps anew, forks, reads into it\n"
         "from a disk (O_DIRECT) and through pipes, asks for huge pages, locks a little. Exits with 1 if a byte was wrong.\n");
    for (int number = 0; number < SETTINGS; number++)
        printf("  %-10s %s (default %lu)\n", settings[number].name, settings[number].what, *settings[number].value);
    printf("  %-10s %s (default %s)\n", "--folder", "where the file for direct reads is made, and removed", options.folder);
    exit(0);
}

static int number_of(const char *text, uint64_t *value) {
    static const struct { const char *name; int shift; } units[] = {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    char *end;
    if (*text < '0' || *text > '9') return 0;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    for (size_t unit = 0; errno == 0 && unit < sizeof units / sizeof *units; unit++)
        if (strcmp(end, units[unit].name) == 0 && number <= UINT64_MAX >> units[unit].shift) {
            *value = number << units[unit].shift;
            return 1;
        }
    return 0;
}

static void read_options(int count, char **words) {
    for (int at = 1; at < count; at += 2) {
        int is_known = 0;
        if (strcmp(words[at], "--help") == 0 || strcmp(words[at], "-h") == 0) help();
        if (at + 1 < count && strcmp(words[at], "--folder") == 0) {
            options.folder = words[at + 1];
            is_known = 1;
        }
        for (int number = 0; at + 1 < count && number < SETTINGS; number++)
            if (strcmp(words[at], settings[number].name) == 0) is_known = number_of(words[at + 1], settings[number].value);
        if (!is_known || options.threads < 1 || options.threads > THREADS_MAX) {
            fprintf(stderr, "%s: no such option, or no fitting number behind it; --help lists what there is\n", words[at]);
            exit(2);
        }
    }
}

int main(int count, char **words) {
    static struct worker workers[THREADS_MAX];
    static struct area locked;
    read_options(count, words);
    int file = make_file();
    lock_some(&locked);
    double begun_s = now_s();
    for (uint64_t number = 0; number < options.threads; number++) start(&workers[number], number, file);
    for (uint64_t number = 0; number < options.threads; number++)
        must(pthread_join(workers[number].thread, 0) == 0, "pthread_join");
    check_area(&locked, "locked");
    printf("hostile: seed %lu, %lu bytes, %lu threads, %.3f s, checked %lu bytes", options.seed, options.size, options.threads, now_s() - begun_s,
           atomic_load(&checked));
    for (int kind = 0; kind < KINDS; kind++) printf(", %s %lu", names[kind], atomic_load(&done[kind]));
    puts(" ok");
    return 0;
}
