/* Threads, signals and closing, on placed files, where a race or a lock would show. Arguments: what to do, a directory in
 * the pool. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <dirent.h>
#include <unistd.h>

#define CHECK(condition) do { if (!(condition)) { \
        dprintf(2, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define FILES 5
#define SIZE 30000
static char names[FILES][4096];
static double until;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

/* Files full of their own letter. */
static void make_files(const char *directory) {
    char data[SIZE];
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "%s/file%d", directory, i);
        memset(data, 'a' + i, SIZE);
        int fd = open(names[i], O_CREAT | O_TRUNC | O_RDWR, 0600);
        CHECK(fd >= 0 && write(fd, data, SIZE) == SIZE && close(fd) == 0);
    }
}

/* Whether this process has datafiles of its own open: it goes past the mount, if it has the library. */
static int goes_past_the_mount(void) {
    DIR *all = opendir("/proc/self/fd");
    struct dirent *one;
    int found = 0;
    while ((one = readdir(all))) {
        char link[300], target[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%s", one->d_name);
        ssize_t len = readlink(link, target, sizeof target - 1);
        if (len > 0) { target[len] = 0; found |= strstr(target, "/s0/") != 0; }
    }
    closedir(all);
    return found || !getenv("LD_PRELOAD");
}

static long raw(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

/* A few numbers that all threads open, replace, copy and close. A read gives bytes of one file, whichever it is; and
 * what is at a number when all have stopped is the file that the kernel says it is. */
#define NUMBERS 6
static int base;
static void *meddle(void *seed_of) {
    unsigned seed = (unsigned)(long)seed_of;
    static __thread char data[SIZE];
    while (now() < until) {
        int number = base + rand_r(&seed) % NUMBERS, other = base + rand_r(&seed) % NUMBERS;
        int file = rand_r(&seed) % FILES;
        switch (rand_r(&seed) % 6) {
        case 0: close(number); break;
        case 1: { int fd = open(names[file], O_RDWR); if (fd >= 0 && fd != number) { dup2(fd, number); close(fd); } break; }
        case 2: dup2(other, number); break;
        case 3: { int copy = fcntl(number, F_DUPFD, base); if (copy >= base + NUMBERS) close(copy); break; }
        default: {
            /* Reads of one request are of one file. */
            ssize_t got = pread(number, data, 9000, rand_r(&seed) % (SIZE - 9000));
            CHECK(got == 9000 || (got == -1 && errno == EBADF));
            for (ssize_t i = 1; i < got; i++) CHECK(data[i] == data[0]);
            if (got > 0) CHECK(data[0] >= 'a' && data[0] < 'a' + FILES);
        } }
    }
    return 0;
}
static void threads(void) {
    for (base = 100; base < 104; base++) {
        until = now() + 0.4;
        pthread_t made[6];
        for (long i = 0; i < 6; i++) pthread_create(&made[i], 0, meddle, (void *)(i * 77 + base));
        for (int i = 0; i < 6; i++) pthread_join(made[i], 0);
        for (int number = base; number < base + NUMBERS; number++) {
            char link[64], target[4096], first = 0, letter;
            snprintf(link, sizeof link, "/proc/self/fd/%d", number);
            ssize_t len = readlink(link, target, sizeof target - 1);
            if (len < 0) { CHECK(pread(number, &first, 1, 0) == -1 && errno == EBADF); continue; }
            target[len] = 0;
            letter = 'a' + target[len - 1] - '0';
            CHECK(pread(number, &first, 1, 0) == 1 && first == letter);
            close(number);
        }
    }
}

/* Handlers that open, read, write, copy and close placed files, and allocate nothing, while the program is in its calls, in
 * malloc, or in other opens. */
static volatile sig_atomic_t handled;
static int shared_fd, bad;
static void handle(int signal) {
    int before = errno;
    char data[3000];
    int fd = open(names[handled % FILES], O_RDWR);
    if (fd < 0) bad = 1;
    int copy = dup(fd);
    if (pread(copy, data, sizeof data, 1000) != sizeof data || data[0] != 'a' + handled % FILES || data[2999] != data[0]) bad = 2;
    if (pwrite(fd, data, 100, 5000) != 100) bad = 3;
    if (pread(shared_fd, data, 10, 20000) != 10 || data[5] != 'a') bad = 4;
    if (close(fd) || close(copy)) bad = 5;
    handled++;
    errno = before;
}
static void handlers(int on_stack) {
    static char stack[65536];
    struct sigaction action = {.sa_handler = handle, .sa_flags = on_stack ? SA_ONSTACK : 0};
    stack_t signals = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(sigaltstack(&signals, 0) == 0 && sigaction(SIGALRM, &action, 0) == 0);
    shared_fd = open(names[0], O_RDONLY);
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, 0) == 0);
    until = now() + 1;
    static char data[SIZE];
    for (unsigned round = 0; now() < until || handled < 50; round++) {
        int file = round % FILES;
        int fd = open(names[file], O_RDWR);
        CHECK(fd >= 0 && read(fd, data, SIZE) == SIZE);
        for (int i = 0; i < SIZE; i++) CHECK(data[i] == 'a' + file);
        CHECK(lseek(fd, 0, SEEK_CUR) == SIZE && lseek(fd, 1234, SEEK_SET) == 1234);
        CHECK(write(fd, data, 9000) == 9000 && lseek(fd, 0, SEEK_CUR) == 10234);
        void *blocks[64];
        for (int i = 0; i < 64; i++) blocks[i] = malloc(round * 37 % 5000 + i);
        for (int i = 0; i < 64; i++) free(blocks[i]);
        CHECK(close(fd) == 0);
        if (round % 50 == 0) {
            pid_t child = fork();
            if (child == 0) _exit(pread(shared_fd, data, 100, 0) != 100 || data[0] != 'a');
            int status = -1;
            while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
            CHECK(status == 0);
        }
    }
    CHECK(setitimer(ITIMER_REAL, &never, 0) == 0 && !bad && goes_past_the_mount());
    close(shared_fd);
}

/* Ways to close everything; then the numbers are used for other files, and what stayed open still works. */
static void close_all(int way) {
    int kept = open(names[0], O_RDWR), fd = open(names[1], O_RDWR);
    char data[100];
    CHECK(pread(kept, data, 100, 0) == 100 && pread(fd, data, 100, 0) == 100);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int first = kept + 1;
    if (way == 0) closefrom(first);
    if (way == 1) CHECK(close_range(first, ~0u, 0) == 0);
    if (way == 2) for (long i = first; i < (long)limit.rlim_cur && i < 300000; i++) close(i);
    if (way == 3) {
        DIR *all = opendir("/proc/self/fd");
        struct dirent *one;
        while ((one = readdir(all))) if (atoi(one->d_name) >= first && atoi(one->d_name) != dirfd(all)) close(atoi(one->d_name));
        closedir(all);
    }
    if (way == 4) CHECK(syscall(SYS_close_range, first, ~0u, 0) == 0);
    if (way == 5) {
        /* Everything, by daemon() and more. */
        pid_t child = fork();
        if (child) { int status; CHECK(waitpid(child, &status, 0) == child && status == 0); return; }
        CHECK(daemon(1, 0) == 0);
        dup2(kept, 0);
        CHECK(read(0, data, 100) == 100 && data[0] == 'a');
        close(kept);
        CHECK(close_range(1, ~0u, 0) == 0 && pread(0, data, 100, 50) == 100 && data[99] == 'a');
        fd = open(names[4], O_RDWR | O_CREAT);
        CHECK(pwrite(fd, "daemon was here", 15, SIZE) == 15);
        _exit(0);
    }
    CHECK(pread(fd, data, 100, 0) == -1 && errno == EBADF);
    CHECK(pread(kept, data, 100, 9950) == 100 && data[99] == 'a');
    for (int i = 2; i < 4; i++) {
        int again = open(names[i], O_RDWR);
        CHECK(again >= first && again < first + 4 && pread(again, data, 100, 0) == 100 && data[0] == 'a' + i);
    }
    CHECK(pwrite(kept, data, 1, 0) == 1 && pread(kept, data + 1, 1, 0) == 1 && data[0] == data[1] && pwrite(kept, "a", 1, 0) == 1);
}

/* Closed by an instruction of the program's own, its number taken by another file. */
static void behind_its_back(void) {
    char data[100];
    int fd = open(names[0], O_RDONLY);
    CHECK(pread(fd, data, 100, 0) == 100 && data[0] == 'a' && goes_past_the_mount());
    CHECK(raw(SYS_close, fd, 0, 0, 0) == 0);
    CHECK(open(names[3], O_RDONLY) == fd && pread(fd, data, 100, 0) == 100 && data[0] == 'd');
    /* It has been found out: nothing goes past the mount any more. */
    CHECK(raw(SYS_close, fd, 0, 0, 0) == 0 && raw(SYS_openat, AT_FDCWD, (long)names[2], O_RDONLY, 0) == fd);
    CHECK(pread(fd, data, 100, 0) == 100 && data[0] == 'c' && read(fd, data, 100) == 100 && data[0] == 'c');
    /* All at once, our descriptors too. */
    CHECK(raw(SYS_close_range, fd, ~0u, 0, 0) == 0);
    for (int i = 0; i < FILES; i++)
        CHECK(open(names[i], O_RDONLY) == fd + i && pread(fd + i, data, 100, 0) == 100 && data[0] == 'a' + i);
}

/* Memory that is not there: EFAULT, and the file and the offset as they were. */
static void bad_memory(void) {
    char *none = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mprotect(none + 4096, 4096, PROT_NONE) == 0);
    char *readable = mmap(0, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open(names[3], O_RDWR);
    struct iovec *lists[] = {(struct iovec *)(none + 4096), (struct iovec *)-1, (struct iovec *)8, (struct iovec *)(none + 4096 - 16)};
    *(struct iovec *)(none + 4096 - 16) = (struct iovec){none, 10};
    CHECK(lseek(fd, 77, SEEK_SET) == 77);
    for (int i = 0; i < 4; i++) {
        CHECK(readv(fd, lists[i], 2) == -1 && errno == EFAULT);
        CHECK(writev(fd, lists[i], 2) == -1 && errno == EFAULT);
        CHECK(preadv(fd, lists[i], 2, 5) == -1 && errno == EFAULT);
        CHECK(pwritev(fd, lists[i], 2, 5) == -1 && errno == EFAULT);
    }
    CHECK(read(fd, none + 4096, 100) == -1 && errno == EFAULT && write(fd, none + 4096, 100) == -1 && errno == EFAULT);
    CHECK(read(fd, readable, 100) == -1 && errno == EFAULT && lseek(fd, 0, SEEK_CUR) == 77);
    /* Holes, which are zeros that nobody reads from anywhere. */
    CHECK(ftruncate(fd, SIZE + 100000) == 0);
    CHECK(pread(fd, readable, 60000, SIZE + 10) == -1 && errno == EFAULT);
    CHECK(pread(fd, none + 4096, 1000, SIZE + 10) == -1 && errno == EFAULT);
    struct iovec hole = {readable, 50000};
    CHECK(preadv(fd, &hole, 1, SIZE + 10) == -1 && errno == EFAULT);
    CHECK(pread(fd, none, 4096, SIZE + 10) == 4096 && none[0] == 0);
    CHECK(ftruncate(fd, SIZE) == 0 && pread(fd, none, 100, 0) == 100 && none[50] == 'd' && goes_past_the_mount());
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    make_files(argv[2]);
    if (!strcmp(what, "threads")) threads();
    if (!strcmp(what, "handlers")) { handlers(0); handlers(1); }
    if (!strcmp(what, "close-all")) for (int way = 0; way < 6; way++) {
        pid_t child = fork();
        if (child == 0) { close_all(way); _exit(0); }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && (status == 0 || dprintf(2, "way %d\n", way) < 0));
    }
    if (!strcmp(what, "behind")) behind_its_back();
    if (!strcmp(what, "memory")) bad_memory();
    return 0;
}
