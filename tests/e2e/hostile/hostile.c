// Programs that notice whoever meddles with them, by their first argument. What they print must be the same whether they are observed or not.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *own;

// Long enough for an observer to look several times. No library function: those may be forbidden.
static void rest(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (syscall(SYS_nanosleep, &left, &left) != 0) {}
}

// Memory that an observer divides: 32 MiB, touched.
static char *memory(void) {
    char *block = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return 0;
    memset(block, 7, 32 << 20);
    return block;
}

static void descriptors(void) {
    for (int number = 0; number < 64; number++) {
        struct stat at;
        if (fstat(number, &at) == 0) printf("%d: kind %o flags %x\n", number, at.st_mode & S_IFMT, fcntl(number, F_GETFD));
    }
}

static void lines(const char *path, const char *const *names) {
    FILE *file = fopen(path, "r");
    char line[4096];
    while (file && fgets(line, sizeof line, file))
        for (int at = 0; names[at]; at++)
            if (strncmp(line, names[at], strlen(names[at])) == 0) fputs(line, stdout);
    if (file) fclose(file);
}

static void look(void) {
    const char *const kept[] = {"Threads", "TracerPid", "THP_enabled", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                                "NoNewPrivs", "Seccomp:", "Uid", "Gid", "CapEff", "Umask", 0};
    lines("/proc/self/status", kept);
    int signal = -1;
    prctl(PR_GET_PDEATHSIG, &signal);
    printf("dumpable %d, signal of the parent's death %d\n", prctl(PR_GET_DUMPABLE), signal);
    printf("huge pages disabled %d\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    int file = open(path, O_RDONLY);
    printf("children %zd\n", read(file, text, sizeof text));
    close(file);
    printf("waits: %d %d\n", waitpid(-1, 0, WNOHANG | __WALL), errno);
}

static void limit(int which, rlim_t most) {
    struct rlimit limit = {most, most};
    if (setrlimit(which, &limit) != 0) perror("setrlimit");
}

static long deep(long left) {
    volatile char page[4096];
    page[left % 4096] = 1;
    return left == 0 ? 0 : page[left % 4096] + deep(left - 1);
}

static void filter(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = {sizeof program / sizeof *program, program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) perror("seccomp");
}

static int count;
static void counted(int signal) { (void)signal; count++; }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    own = argv[0];
    int first_errno = errno;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (strcmp(what, "closes") == 0) {
        memory();
        rest(100);
        syscall(SYS_close_range, 3, ~0u, 0);
        int log = open("hostile.log", O_RDWR | O_CREAT | O_TRUNC, 0644), failed = 0;
        for (int line = 0; line < 100; line++) {
            char text[32];
            int length = snprintf(text, sizeof text, "line %03d\n", line);
            failed += write(log, text, length) != length;
            free(memset(malloc(1 << 20), line, 1 << 20));
            rest(3);
        }
        printf("log %d, %d failed\n", log, failed);
    } else if (strcmp(what, "numbers") == 0) {
        // Uses low descriptors by their numbers.
        for (int number = 3; number < 10; number++)
            if (dup2(open("/dev/null", O_RDWR), number) < 0) perror("dup2");
        memory();
        rest(300);
        descriptors();
        for (int number = 3; number < 10; number++) close(number);
        descriptors();
    } else if (strcmp(what, "looks") == 0) {
        printf("errno %d, %s\n", first_errno, own);
        descriptors();
        look();
        memory();
        rest(300);
        look();
        for (char **it = environ; *it; it++) puts(*it);
        int file = open("/proc/self/environ", O_RDONLY);
        char text[1 << 16];
        ssize_t length = read(file, text, sizeof text);
        printf("environ %zd\n", length);
        for (int signal = 1; signal < 65; signal++) {
            struct sigaction action;
            if (sigaction(signal, 0, &action) == 0 && action.sa_handler != SIG_DFL) printf("signal %d\n", signal);
        }
    } else if (strcmp(what, "forks") == 0) {
        memory();
        for (int child = 0; child < 20; child++)
            if (fork() == 0) {
                rest(10 * (child % 5));
                _exit(child);
            }
        int seen = 0, status, pid;
        while ((pid = wait(&status)) > 0) seen += WEXITSTATUS(status) + 1;
        printf("%d, then %d\n", seen, errno);
        // A child that outlives its parent.
        if (fork() == 0) {
            rest(300);
            puts("the child has ended");
        }
    } else if (strcmp(what, "spawns") == 0) {
        char *const echo[] = {"echo", "spawned", 0};
        pid_t pid;
        memory();
        for (int round = 0; round < 5; round++) {
            if (posix_spawnp(&pid, "echo", 0, 0, echo, environ) != 0) perror("posix_spawn");
            waitpid(pid, 0, 0);
            if (system("echo system") != 0) perror("system");
            if (vfork() == 0) {
                execlp("echo", "echo", "vfork", (char *)0);
                _exit(1);
            }
            wait(0);
            rest(30);
        }
    } else if (strcmp(what, "execs") == 0) {
        memory();
        rest(argc > 2 ? 100 : 0);
        execl("/proc/self/exe", own, "looks", (char *)0);
    } else if (strcmp(what, "waits") == 0) {
        // System calls that tell when they are interrupted, in a program that was begun by another.
        if (argc < 3) execl("/proc/self/exe", own, "waits", "now", (char *)0);
        memory();
        int set = epoll_create1(0), interrupted = 0;
        for (int round = 0; round < 20; round++) {
            struct epoll_event event;
            interrupted += epoll_wait(set, &event, 1, 50) != 0;
            interrupted += usleep(10000) != 0;
            sigset_t none;
            sigemptyset(&none);
            sigaddset(&none, SIGUSR2);
            struct timespec soon = {0, 10000000};
            interrupted += sigtimedwait(&none, 0, &soon) == -1 && errno != EAGAIN;
        }
        printf("interrupted %d\n", interrupted);
    } else if (strcmp(what, "unshares") == 0) {
        memory();
        rest(200);
        printf("%d\n", unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
        printf("%d\n", unshare(CLONE_FS | CLONE_FILES | CLONE_NEWUTS) == 0 ? 0 : errno);
    } else if (strcmp(what, "drops") == 0) {
        memory();
        rest(100);
        if (setgid(65534) != 0 || setuid(65534) != 0) perror("drops");
        rest(200);
        look();
        printf("back: %d\n", setuid(0));
    } else if (strcmp(what, "filters") == 0) {
        memory();
        rest(100);
        filter();
        rest(300);
        if (write(1, "filtered\n", 9) != 9) return 1;
        syscall(SYS_exit_group, 5);
    } else if (strcmp(what, "strict") == 0) {
        memory();
        rest(100);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        for (int round = 0; round < 300000; round++)
            if (write(1, "", 0) != 0) break;
        if (write(1, "strict\n", 7) != 7) return 1;
        syscall(SYS_exit, 6);
    } else if (strcmp(what, "stack") == 0) {
        if (argc < 3) {
            limit(RLIMIT_STACK, 256 << 10);
            execl("/proc/self/exe", own, "stack", "small", (char *)0);
        }
        memory();
        rest(200);
        printf("%ld\n", deep(20));
    } else if (strcmp(what, "nofile") == 0) {
        limit(RLIMIT_NOFILE, 4);
        memory();
        rest(300);
        int opened = 0;
        while (open("/dev/null", O_RDONLY) >= 0) opened++;
        printf("%d, then %d\n", opened, errno);
    } else if (strcmp(what, "space") == 0) {
        limit(RLIMIT_AS, 128 << 20);
        memory();
        rest(300);
        int got = 0;
        while (mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) got++;
        printf("%d, then %d\n", got, errno);
    } else if (strcmp(what, "maps") == 0) {
        // As many mappings as there may be: of two pages with different protection each.
        rest(200);
        int got = 0;
        for (;; got++) {
            char *block = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (block == MAP_FAILED || mprotect(block, 4096, PROT_NONE) != 0) break;
        }
        printf("%d, then %d\n", got, errno);
        fflush(stdout);
        rest(200);
        _exit(0);
    } else if (strcmp(what, "locks") == 0) {
        limit(RLIMIT_MEMLOCK, 64 << 20);
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) perror("mlockall");
        printf("%d\n", memory() != 0);
        rest(300);
        printf("%d\n", memory() != 0);
    } else if (strcmp(what, "traces") == 0) {
        // A debugger: traces its child.
        memory();
        pid_t child = fork();
        if (child == 0) {
            ptrace(PTRACE_TRACEME, 0, 0, 0);
            raise(SIGSTOP);
            rest(100);
            _exit(9);
        }
        int status;
        for (;;) {
            waitpid(child, &status, 0);
            if (WIFEXITED(status)) break;
            ptrace(PTRACE_CONT, child, 0, 0);
        }
        printf("%d\n", WEXITSTATUS(status));
    } else if (strcmp(what, "signals") == 0) {
        struct sigaction action = {.sa_handler = counted};
        for (int signal = 1; signal < 32; signal++)
            if (signal != SIGKILL && signal != SIGSTOP) sigaction(signal, &action, 0);
        memory();
        rest(400);
        for (int round = 0; round < 1000; round++) kill(getpid(), SIGUSR1 + 2 * (round % 2));
        printf("%d\n", count);
    } else if (strcmp(what, "ignores") == 0) {
        // A trap that is ignored, or blocked, is so afterwards.
        signal(SIGTRAP, SIG_IGN);
        if (argc < 3) execl("/proc/self/exe", own, "ignores", "now", (char *)0);
        memory();
        rest(300);
        look();
    } else if (strcmp(what, "killed") == 0) {
        memory();
        rest(200);
        puts("goes");
        raise(argc > 2 ? atoi(argv[2]) : SIGKILL);
    } else if (strcmp(what, "exits") == 0) {
        memory();
        rest(200);
        return argc > 2 ? atoi(argv[2]) : 0;
    } else if (strcmp(what, "reads") == 0) {
        char line[256];
        memory();
        printf("terminal %d %d %d, foreground %d\n", isatty(0), isatty(1), isatty(2), isatty(0) ? tcgetpgrp(0) == getpgrp() : -1);
        while (fgets(line, sizeof line, stdin)) printf("read %s", line);
    } else {
        fprintf(stderr, "there is no program %s\n", what);
        return 2;
    }
    return 0;
}
