/* Does everything that libc can do to the bytes of a file, on a placed file, and checks the bytes. Prints "ok NAME" for
 * each function whose effect it has checked. Arguments: a directory in the pool, one outside. */
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <mqueue.h>
#include <pty.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#define SIZE 40000
static char base[SIZE], model[4 * SIZE], seen[4 * SIZE], in_pool[4096], outside[4096];
static size_t model_size;

static void fail(const char *name, const char *what) {
    printf("FAILED %s: %s (errno %d)\n", name, what, errno);
    fflush(stdout);
    _exit(1);
}
#define CHECK(name, condition) do { if (!(condition)) fail(name, #condition); } while (0)
static void ok(const char *name) { printf("ok %s\n", name); }

/* System calls that no library sees. */
static long raw(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
static int raw_open(const char *path, int flags) { return raw(SYS_openat, AT_FDCWD, (long)path, flags, 0600); }

/* A placed file with the base content, open. */
static int fresh(int flags) {
    int fd = open(in_pool, O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK("fresh", fd >= 0 && write(fd, base, SIZE) == SIZE && close(fd) == 0);
    memcpy(model, base, SIZE);
    model_size = SIZE;
    fd = open(in_pool, flags);
    CHECK("fresh", fd >= 0);
    return fd;
}
static void model_write(const char *bytes, size_t len, size_t at) {
    if (at > model_size) memset(model + model_size, 0, at - model_size);
    memcpy(model + at, bytes, len);
    if (at + len > model_size) model_size = at + len;
}
/* The file has the model's content: read without any library, through the mount. */
static void same(const char *name) {
    int fd = raw_open(in_pool, O_RDONLY);
    size_t got = 0;
    for (;;) {
        long n = raw(SYS_pread64, fd, (long)seen + got, sizeof seen - got, got);
        CHECK(name, n >= 0);
        if (n == 0) break;
        got += n;
    }
    raw(SYS_close, fd, 0, 0, 0);
    struct stat st;
    CHECK(name, stat(in_pool, &st) == 0 && (size_t)st.st_size == model_size);
    CHECK(name, got == model_size);
    CHECK(name, memcmp(seen, model, got) == 0);
    ok(name);
}

extern ssize_t __read(int, void *, size_t), __write(int, const void *, size_t);
extern ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
extern ssize_t __read_chk(int, void *, size_t, size_t), __pread_chk(int, void *, size_t, off_t, size_t);
extern ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
extern int __open_2(const char *, int), __open64_2(const char *, int), __openat_2(int, const char *, int);
extern int __openat64_2(int, const char *, int), __open(const char *, int, ...), __open64(const char *, int, ...);
extern int __close(int), __dup2(int, int), __fcntl(int, int, ...);
extern void _IO_file_finish(FILE *, int);
extern pid_t __vfork(void);
extern int _IO_fclose(FILE *), _IO_file_close(FILE *), __endmntent(FILE *);
extern FILE *_IO_fopen(const char *, const char *), *__setmntent(const char *, const char *);

static struct iovec two[2];
static struct iovec *vec(char *p, size_t len) {
    two[0] = (struct iovec){p, len / 3};
    two[1] = (struct iovec){p + len / 3, len - len / 3};
    return two;
}

/* One read of 9000 bytes across three stripes, at the cursor and at an offset. */
#define READ(name, offset, call, cursor_after) do { \
        int fd = fresh(O_RDONLY); \
        char *p = seen; size_t n = 9000; (void)p; (void)n; \
        CHECK(#name, lseek(fd, 3000, SEEK_SET) == 3000); \
        memset(seen, 1, n); \
        CHECK(#name, (call) == 9000 && memcmp(seen, base + (offset), 9000) == 0); \
        CHECK(#name, lseek(fd, 0, SEEK_CUR) == (cursor_after)); \
        CHECK(#name, close(fd) == 0); ok(#name); } while (0)
#define WRITE(name, offset, call, cursor_after) do { \
        int fd = fresh(O_RDWR); \
        static char data[9000]; memset(data, 'w', sizeof data); \
        char *p = data; size_t n = sizeof data; (void)n; \
        CHECK(#name, lseek(fd, 3000, SEEK_SET) == 3000); \
        CHECK(#name, (call) == 9000); \
        CHECK(#name, lseek(fd, 0, SEEK_CUR) == (cursor_after)); \
        model_write(p, 9000, (offset)); \
        CHECK(#name, close(fd) == 0); same(#name); } while (0)

static void transfers(void) {
    READ(read, 3000, read(fd, p, n), 12000);
    READ(__read, 3000, __read(fd, p, n), 12000);
    READ(__read_chk, 3000, __read_chk(fd, p, n, sizeof seen), 12000);
    READ(readv, 3000, readv(fd, vec(p, n), 2), 12000);
    READ(pread, 7000, pread(fd, p, n, 7000), 3000);
    READ(pread64, 7000, pread64(fd, p, n, 7000), 3000);
    READ(__pread64, 7000, __pread64(fd, p, n, 7000), 3000);
    READ(__pread_chk, 7000, __pread_chk(fd, p, n, 7000, sizeof seen), 3000);
    READ(__pread64_chk, 7000, __pread64_chk(fd, p, n, 7000, sizeof seen), 3000);
    READ(preadv, 7000, preadv(fd, vec(p, n), 2, 7000), 3000);
    READ(preadv64, 7000, preadv64(fd, vec(p, n), 2, 7000), 3000);
    READ(preadv2, 7000, preadv2(fd, vec(p, n), 2, 7000, 0), 3000);
    READ(preadv2, 3000, preadv2(fd, vec(p, n), 2, -1, 0), 12000);
    READ(preadv64v2, 7000, preadv64v2(fd, vec(p, n), 2, 7000, 0), 3000);
    READ(syscall, 3000, syscall(SYS_read, fd, p, n), 12000);
    WRITE(write, 3000, write(fd, p, n), 12000);
    WRITE(__write, 3000, __write(fd, p, n), 12000);
    WRITE(writev, 3000, writev(fd, vec(p, n), 2), 12000);
    WRITE(pwrite, 38000, pwrite(fd, p, n, 38000), 3000);
    WRITE(pwrite64, 50000, pwrite64(fd, p, n, 50000), 3000);
    WRITE(__pwrite64, 7000, __pwrite64(fd, p, n, 7000), 3000);
    WRITE(pwritev, 7000, pwritev(fd, vec(p, n), 2, 7000), 3000);
    WRITE(pwritev64, 7000, pwritev64(fd, vec(p, n), 2, 7000), 3000);
    WRITE(pwritev2, 7000, pwritev2(fd, vec(p, n), 2, 7000, 0), 3000);
    WRITE(pwritev2, 3000, pwritev2(fd, vec(p, n), 2, -1, 0), 12000);
    WRITE(pwritev2, 40000, pwritev2(fd, vec(p, n), 2, -1, RWF_APPEND), 49000);
    WRITE(pwritev64v2, 7000, pwritev64v2(fd, vec(p, n), 2, 7000, 0), 3000);
    WRITE(syscall, 3000, syscall(SYS_write, fd, p, n), 12000);

    /* The end of the file, holes, and what must fail. */
    int fd = fresh(O_RDONLY);
    CHECK("read at the end", pread(fd, seen, 9000, SIZE - 100) == 100 && pread(fd, seen, 10, SIZE) == 0);
    CHECK("read at the end", lseek(fd, -100, SEEK_END) == SIZE - 100 && read(fd, seen, 9000) == 100);
    CHECK("read at the end", lseek(fd, 0, SEEK_CUR) == SIZE && read(fd, seen, 1) == 0 && lseek(fd, 0, SEEK_CUR) == SIZE);
    errno = 0;
    CHECK("errno", write(fd, base, 1) == -1 && errno == EBADF);
    CHECK("errno", pread(fd, seen, 1, -5) == -1 && errno == EINVAL);
    CHECK("errno", readv(fd, two, -1) == -1 && errno == EINVAL);
    errno = 77;
    CHECK("errno", pread(fd, seen, 1, 0) == 1 && errno == 77);
    CHECK("errno", read(fd, NULL, 0) == 0 && close(fd) == 0);
    CHECK("errno", read(fd, seen, 1) == -1 && errno == EBADF);
    fd = fresh(O_WRONLY);
    CHECK("errno", read(fd, seen, 1) == -1 && errno == EBADF && close(fd) == 0);
}

/* Names that open: what is then written goes where it should. */
#define OPEN(name, call) do { \
        close(fresh(O_RDWR)); \
        int fd = (call); \
        CHECK(#name, fd >= 0 && pwrite(fd, "opened", 6, 8190) == 6); \
        model_write("opened", 6, 8190); \
        CHECK(#name, close(fd) == 0); same(#name); } while (0)
#define MAKE(name, call) do { \
        char path[4200]; \
        snprintf(path, sizeof path, "%s.XXXXXX%s", in_pool, strstr(#name, "temps") ? ".end" : ""); \
        int fd = (call); \
        CHECK(#name, fd >= 0 && write(fd, base, 9000) == 9000); \
        CHECK(#name, raw(SYS_pread64, fd, (long)seen, 9000, 0) == (strstr(#name, "creat") ? -EBADF : 9000)); \
        struct stat st; \
        CHECK(#name, fstat(fd, &st) == 0 && st.st_size == 9000); \
        CHECK(#name, strstr(#name, "creat") || memcmp(seen, base, 9000) == 0); \
        CHECK(#name, close(fd) == 0 && unlink(path) == 0); ok(#name); } while (0)

static void opens(void) {
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    OPEN(open, open(in_pool, O_RDWR));
    OPEN(open64, open64(in_pool, O_RDWR));
    OPEN(__open, __open(in_pool, O_RDWR));
    OPEN(__open64, __open64(in_pool, O_RDWR));
    OPEN(__open_2, __open_2(in_pool, O_RDWR));
    OPEN(__open64_2, __open64_2(in_pool, O_RDWR));
    OPEN(openat, openat(dir, in_pool, O_RDWR));
    OPEN(openat64, openat64(dir, in_pool, O_RDWR));
    OPEN(__openat_2, __openat_2(dir, in_pool, O_RDWR));
    OPEN(__openat64_2, __openat64_2(dir, in_pool, O_RDWR));
    OPEN(syscall, syscall(SYS_openat, AT_FDCWD, in_pool, O_RDWR));
    close(dir);
    MAKE(creat, creat(path, 0600));
    MAKE(creat64, creat64(path, 0600));
    MAKE(mkstemp, mkstemp(path));
    MAKE(mkstemp64, mkstemp64(path));
    MAKE(mkostemp, mkostemp(path, O_CLOEXEC));
    MAKE(mkostemp64, mkostemp64(path, O_CLOEXEC));
    MAKE(mkstemps, mkstemps(path, 4));
    MAKE(mkstemps64, mkstemps64(path, 4));
    MAKE(mkostemps, mkostemps(path, 4, O_CLOEXEC));
    MAKE(mkostemps64, mkostemps64(path, 4, O_CLOEXEC));
}

/* Copies share the offset and the file. */
#define COPY(name, call) do { \
        int fd = fresh(O_RDWR); \
        int copy = (call); \
        CHECK(#name, copy >= 0 && copy != fd); \
        CHECK(#name, write(fd, "first", 5) == 5 && write(copy, "second", 6) == 6); \
        CHECK(#name, lseek(fd, 0, SEEK_CUR) == 11 && close(fd) == 0 && write(copy, "third", 5) == 5); \
        model_write("firstsecondthird", 16, 0); \
        CHECK(#name, close(copy) == 0); same(#name); } while (0)

static void copies(void) {
    COPY(dup, dup(fd));
    COPY(dup2, dup2(fd, 77));
    COPY(__dup2, __dup2(fd, 77));
    COPY(dup3, dup3(fd, 78, O_CLOEXEC));
    COPY(fcntl, fcntl(fd, F_DUPFD, 50));
    COPY(fcntl64, fcntl64(fd, F_DUPFD_CLOEXEC, 50));
    COPY(__fcntl, __fcntl(fd, F_DUPFD, 50));
    COPY(syscall, (int)syscall(SYS_dup, fd));

    int fd = fresh(O_RDWR);
    pid_t child = fork();
    if (child == 0) _exit(write(fd, "child ", 6) != 6);
    int status;
    CHECK("fork", waitpid(child, &status, 0) == child && status == 0 && write(fd, "parent", 6) == 6);
    model_write("child parent", 12, 0);
    CHECK("fork", close(fd) == 0);
    same("fork");
    fd = fresh(O_RDWR);
    child = vfork();
    if (child == 0) { close(fd); _exit(0); }
    CHECK("vfork", waitpid(child, &status, 0) == child && status == 0 && write(fd, "still open", 10) == 10);
    model_write("still open", 10, 0);
    CHECK("vfork", close(fd) == 0);
    same("vfork");
    fd = fresh(O_RDWR);
    child = __vfork();
    if (child == 0) { close(fd); _exit(0); }
    CHECK("__vfork", waitpid(child, &status, 0) == child && status == 0 && write(fd, "still open", 10) == 10);
    model_write("still open", 10, 0);
    CHECK("__vfork", close(fd) == 0);
    same("__vfork");

    fd = fresh(O_RDWR);
    CHECK("O_APPEND", fcntl(fd, F_SETFL, O_APPEND) == 0 && write(fd, "end", 3) == 3 && pwrite(fd, "end", 3, 5) == 3);
    model_write("endend", 6, SIZE);
    CHECK("O_APPEND", close(fd) == 0);
    same("O_APPEND");
}

/* After a close by whatever name, the number stands for another file, opened where no library sees it: what is written
 * to it must go there. */
#define CLOSE(name, call) do { \
        int fd = fresh(O_RDWR); \
        CHECK(#name, pwrite(fd, "before", 6, 0) == 6); \
        model_write("before", 6, 0); \
        call; \
        CHECK(#name, raw(SYS_fcntl, fd, F_GETFD, 0, 0) == -EBADF); \
        reused(#name, fd); } while (0)

static void reused(const char *name, int fd) {
    int other = raw_open(outside, O_CREAT | O_TRUNC | O_RDWR);
    CHECK(name, other >= 0 && raw(SYS_dup2, other, fd, 0, 0) == fd);
    CHECK(name, write(fd, "elsewhere", 9) == 9 && pwrite(fd, "!", 1, 9) == 1);
    memset(seen, 0, 16);
    CHECK(name, raw(SYS_pread64, other, (long)seen, 16, 0) == 10 && memcmp(seen, "elsewhere!", 10) == 0);
    if (other != fd) raw(SYS_close, other, 0, 0, 0);
    raw(SYS_close, fd, 0, 0, 0);
    same(name);
}

static void closes(void) {
    CLOSE(close, CHECK("close", close(fd) == 0));
    CLOSE(__close, CHECK("close", __close(fd) == 0));
    CLOSE(syscall, CHECK("syscall", syscall(SYS_close, fd) == 0));
    CLOSE(close_range, CHECK("close_range", close_range(fd, fd, 0) == 0));
    CLOSE(close_range, CHECK("close_range", close_range(3, ~0U, 0) == 0));
    CLOSE(closefrom, closefrom(3));
    CLOSE(fclose, CHECK("fclose", fclose(fdopen(fd, "r+")) == 0));
    CLOSE(_IO_fclose, CHECK("_IO_fclose", _IO_fclose(fdopen(fd, "r+")) == 0));
    CLOSE(pclose, pclose(fdopen(fd, "r+")));
    CLOSE(endmntent, endmntent(fdopen(fd, "r+")));
    CLOSE(__endmntent, __endmntent(fdopen(fd, "r+")));
    CLOSE(_IO_file_close, _IO_file_close(fdopen(fd, "r+")));
    CLOSE(_IO_file_finish, _IO_file_finish(fdopen(fd, "r+"), 0));
    CLOSE(mq_close, CHECK("mq_close", mq_close(fd) == 0));

    /* A library's descriptors survive all that: bytes still arrive, and the program cannot see or close them. */
    int fd = fresh(O_RDWR);
    for (int i = 3; i < 70000; i++) if (i != fd) close(i);
    CHECK("own descriptors", pwrite(fd, "alive", 5, 4094) == 5);
    model_write("alive", 5, 4094);
    CHECK("own descriptors", close(fd) == 0);
    same("own descriptors");

    /* Replaced instead of closed. */
    int plain = raw_open(outside, O_CREAT | O_TRUNC | O_RDWR);
#define REPLACE(name, call) do { \
        fd = fresh(O_RDWR); \
        CHECK(#name, pwrite(fd, "before", 6, 0) == 6); \
        model_write("before", 6, 0); \
        CHECK(#name, (call) == fd && pwrite(fd, "plain", 5, 0) == 5); \
        CHECK(#name, raw(SYS_pread64, plain, (long)seen, 5, 0) == 5 && memcmp(seen, "plain", 5) == 0); \
        CHECK(#name, close(fd) == 0); same(#name); } while (0)
    REPLACE(dup2, dup2(plain, fd));
    REPLACE(__dup2, __dup2(plain, fd));
    REPLACE(dup3, dup3(plain, fd, 0));
    REPLACE(syscall, syscall(SYS_dup3, plain, fd, 0));
    REPLACE(freopen, fileno(freopen(outside, "r+", fdopen(fd, "r+"))));
    REPLACE(freopen64, fileno(freopen64(outside, "r+", fdopen(fd, "r+"))));
    raw(SYS_close, plain, 0, 0, 0);

    /* Those that replace the standard descriptors, in a child. */
    for (int which = 0; which < 3; which++) {
        fd = fresh(O_RDWR);
        int report[2];
        CHECK("report", pipe(report) == 0);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 3; i++) dup2(fd, i);
            if (which == 0 && daemon(1, 0) != 0) _exit(1);
            int main_side, other;
            char *name = NULL;
            if (which == 1 && (openpty(&main_side, &other, name, NULL, NULL) != 0 || login_tty(other) != 0)) _exit(2);
            if (which == 2) {
                pid_t in_terminal = forkpty(&main_side, NULL, NULL, NULL);
                if (in_terminal > 0) _exit(waitpid(in_terminal, NULL, 0) != in_terminal);
            }
            char good = write(1, "not in the file", 15) == 15;
            (void)!write(report[1], &good, 1);
            _exit(0);
        }
        char good = 0;
        CHECK("standard descriptors", waitpid(child, NULL, 0) == child && read(report[0], &good, 1) == 1 && good);
        close(report[0]); close(report[1]); close(fd);
        same(which == 0 ? "daemon" : which == 1 ? "login_tty" : "forkpty");
    }
}

static void print(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vdprintf(fd, format, list);
    va_end(list);
}

/* Calls that are left to the kernel and the mount, mixed with ours on the same descriptor. */
static void others(void) {
    int fd = fresh(O_RDWR);
    CHECK("dprintf", write(fd, "ab", 2) == 2 && dprintf(fd, "%d", 12) == 2 && write(fd, "cd", 2) == 2);
    print(fd, "%s", "xyz");
    model_write("ab12cdxyz", 9, 0);
    same("dprintf");
    ok("vdprintf");
    CHECK("ftruncate", ftruncate(fd, 20000) == 0 && pread(fd, seen, 9000, 15000) == 5000);
    model_size = 20000;
    same("ftruncate");
    CHECK("truncate", truncate(in_pool, 30000) == 0 && pread(fd, seen, 9000, 25000) == 5000);
    memset(model + 20000, 0, 10000);
    model_size = 30000;
    same("truncate");
    CHECK("posix_fallocate", posix_fallocate(fd, 0, 41000) == 0 && pread(fd, seen, 9000, 40000) == 1000);
    memset(model + 30000, 0, 11000);
    model_size = 41000;
    same("posix_fallocate");
    CHECK("lseek", lseek64(fd, 0, SEEK_END) == 41000 && write(fd, "tail", 4) == 4);
    model_write("tail", 4, 41000);
    same("lseek64");

    struct aiocb job = {.aio_fildes = fd, .aio_buf = "asynchronous", .aio_nbytes = 12, .aio_offset = 8185};
    const struct aiocb *jobs[] = {&job};
    CHECK("aio_write", aio_write(&job) == 0);
    while (aio_error(&job) == EINPROGRESS) aio_suspend(jobs, 1, NULL);
    CHECK("aio_write", aio_return(&job) == 12);
    model_write("asynchronous", 12, 8185);
    same("aio_write");
    memset(seen, 0, 12);
    job.aio_buf = seen;
    CHECK("aio_read", pwrite(fd, "A", 1, 8185) == 1 && aio_read(&job) == 0);
    model_write("A", 1, 8185);
    while (aio_error(&job) == EINPROGRESS) aio_suspend(jobs, 1, NULL);
    CHECK("aio_read", aio_return(&job) == 12 && memcmp(seen, "Asynchronous", 12) == 0);
    ok("aio_read");

    int plain = open(outside, O_CREAT | O_TRUNC | O_RDWR, 0600);
    off_t at = 3000;
    CHECK("sendfile", sendfile(plain, fd, &at, 9000) == 9000 && pread(plain, seen, 9000, 0) == 9000);
    CHECK("sendfile", memcmp(seen, model + 3000, 9000) == 0);
    ok("sendfile");
    loff_t from = 0, to = 12000;
    ssize_t copied = copy_file_range(plain, &from, fd, &to, 5000, 0);
    CHECK("copy_file_range", copied == 5000 || (copied == -1 && errno == EXDEV));
    if (copied > 0) model_write(seen, 5000, 12000);
    same("copy_file_range");
    int ends[2];
    CHECK("splice", pipe(ends) == 0 && write(ends[1], "spliced", 7) == 7);
    loff_t place = 16380;
    CHECK("splice", splice(ends[0], NULL, fd, &place, 7, 0) == 7 && close(ends[0]) == 0 && close(ends[1]) == 0);
    model_write("spliced", 7, 16380);
    same("splice");
    CHECK("close", close(plain) == 0 && close(fd) == 0);

    FILE *stream = fopen(in_pool, "r+");
    CHECK("fopen", stream && fprintf(stream, "%s", "formatted") == 9 && fputs("put", stream) >= 0);
    CHECK("fopen", fputc('c', stream) == 'c' && fwrite(base, 1, 9000, stream) == 9000 && fflush(stream) == 0);
    CHECK("fopen", pwrite(fileno(stream), "under", 5, 100) == 5 && fseek(stream, 20000, SEEK_SET) == 0);
    CHECK("fopen", fread(seen, 1, 5000, stream) == 5000 && memcmp(seen, model + 20000, 5000) == 0);
    CHECK("fopen", fseek(stream, 0, SEEK_END) == 0 && fputs("last", stream) >= 0 && fclose(stream) == 0);
    size_t end = model_size;
    model_write("formattedputc", 13, 0);
    model_write(base, 9000, 13);
    model_write("under", 5, 100);
    model_write("last", 4, end);
    same("fopen");

    fd = fresh(O_RDWR);
    int writer = open(in_pool, O_RDWR);
    CHECK("mmap", pwrite(writer, "one", 3, 5000) == 3);
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK("mmap", map != MAP_FAILED && memcmp(map + 5000, "one", 3) == 0);
    memcpy(map + 9000, "mapped", 6);
    CHECK("mmap", pread(writer, seen, 6, 9000) == 6 && memcmp(seen, "mapped", 6) == 0);
    CHECK("mmap", pwrite(writer, "two", 3, 5000) == 3 && memcmp(map + 5000, "two", 3) == 0);
    CHECK("mmap", msync(map, SIZE, MS_SYNC) == 0 && munmap(map, SIZE) == 0 && close(fd) == 0 && close(writer) == 0);
    model_write("two", 3, 5000);
    model_write("mapped", 6, 9000);
    same("mmap");
    fd = fresh(O_RDWR);
    CHECK("mmap64", pwrite(fd, "one", 3, 5000) == 3);
    map = mmap64(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK("mmap64", map != MAP_FAILED && memcmp(map + 5000, "one", 3) == 0 && memcmp(map + 20000, base + 20000, 9000) == 0);
    CHECK("mmap64", munmap(map, SIZE) == 0 && close(fd) == 0);
    ok("mmap64");

    /* Mapped up to where only the library knew that the file had grown. */
    fd = fresh(O_RDWR);
    CHECK("mmap after growth", ftruncate(fd, 3) == 0 && pwrite(fd, "grown", 5, 29995) == 5);
    map = mmap(NULL, 30000, PROT_READ, MAP_SHARED, fd, 0);
    CHECK("mmap after growth", map != MAP_FAILED && memcmp(map + 29995, "grown", 5) == 0 && memcmp(map, base, 3) == 0);
    CHECK("mmap after growth", munmap(map, 30000) == 0 && close(fd) == 0);

    char moved[4200];
    snprintf(moved, sizeof moved, "%s.moved", in_pool);
    fd = fresh(O_RDWR);
    CHECK("rename", rename(in_pool, moved) == 0 && pwrite(fd, "renamed", 7, 0) == 7 && rename(moved, in_pool) == 0);
    model_write("renamed", 7, 0);
    same("rename");
    CHECK("unlink", unlink(in_pool) == 0 && pwrite(fd, "gone", 4, 8190) == 4 && pread(fd, seen, 4, 8190) == 4);
    CHECK("unlink", memcmp(seen, "gone", 4) == 0 && close(fd) == 0);
    ok("unlink");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    snprintf(in_pool, sizeof in_pool, "%s/every_call", argv[1]);
    snprintf(outside, sizeof outside, "%s/plain", argv[2]);
    for (int i = 0; i < SIZE; i++) base[i] = 'a' + i % 23 + i / 4096 % 3;
    transfers();
    opens();
    copies();
    others();
    closes();
    return 0;
}
