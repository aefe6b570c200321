/* The calls that are left to the kernel and the mount, one by one: each is made by its name, as a program that was
 * linked with it would, on a placed file whose bytes were written past the mount just before. What it reads, or what it
 * leaves in the file, is compared. Prints "ok NAME" like every_call.c. Arguments: a directory in the pool, one outside. */
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <err.h>
#include <execinfo.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <gshadow.h>
#include <link.h>
#include <mntent.h>
#include <nl_types.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <shadow.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>
#include <utmp.h>
#include <utmpx.h>
#include <wchar.h>
#include <wordexp.h>

#define SIZE 20000
static char base[SIZE], model[4 * SIZE], seen[4 * SIZE], in_pool[4000], other[4096], directory[3900], outside[4096];
static size_t model_size;
/* What is at the begin of each file that is read. */
#define TEXT "alpha 12\nsecond\n"

static void fail(const char *name, const char *what) {
    printf("FAILED %s: %s (errno %d)\n", name, what, errno);
    fflush(stdout);
    _exit(1);
}
#define CHECK(name, condition) do { if (!(condition)) fail(name, #condition); } while (0)
static void ok(const char *name) { printf("ok %s\n", name); }

/* The function that a program linked with `name` calls: neither a macro nor an inline function of a header. */
static void *found(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    CHECK(name, address != NULL);
    return address;
}
#define F(name) ((__typeof__(&name))found(#name))
/* One that no header declares. */
#define G(name, result, ...) ((result (*)(__VA_ARGS__))found(#name))

static long raw(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

/* The placed file with `text` and then `rest` bytes of the base content. */
static void content(const char *text, size_t rest) {
    model_size = strlen(text) + rest;
    memcpy(model, text, strlen(text));
    memcpy(model + strlen(text), base + strlen(text), rest);
    int fd = open(in_pool, O_CREAT | O_TRUNC | O_RDWR, 0600);
    CHECK("content", fd >= 0 && pwrite(fd, model, model_size, 0) == (ssize_t)model_size && close(fd) == 0);
}
static int opened(int flags) {
    content(TEXT, SIZE - sizeof TEXT + 1);
    int fd = open(in_pool, flags);
    CHECK("open", fd >= 0);
    return fd;
}
static FILE *stream(const char *mode) {
    content(TEXT, SIZE - sizeof TEXT + 1);
    FILE *s = fopen(in_pool, mode);
    CHECK("fopen", s != NULL);
    return s;
}
static void model_write(const char *bytes, size_t len, size_t at) {
    if (at > model_size) memset(model + model_size, 0, at - model_size);
    memcpy(model + at, bytes, len);
    if (at + len > model_size) model_size = at + len;
}
/* The file has the model's content: read without any library, through the mount. */
static void same(const char *name) {
    int fd = raw(SYS_openat, AT_FDCWD, (long)in_pool, O_RDONLY, 0);
    size_t got = 0;
    long n;
    while ((n = raw(SYS_pread64, fd, (long)seen + got, sizeof seen - got, got)) > 0) got += n;
    CHECK(name, n == 0 && got == model_size && memcmp(seen, model, got) == 0);
    raw(SYS_close, fd, 0, 0, 0);
    ok(name);
}

/* A descriptor `fd` or a stream `s` on the file: what the call gives is compared by `condition`. */
#define FD(name, condition) do { \
        int fd = opened(O_RDWR); \
        CHECK(#name, condition); CHECK(#name, close(fd) == 0); same(#name); } while (0)
#define IN(name, condition) do { \
        FILE *s = stream("r"); \
        CHECK(#name, condition); CHECK(#name, fclose(s) == 0); ok(#name); } while (0)
/* A call that writes `text` at the begin of the file, if it makes `condition` true. */
#define OUT(name, text, condition) do { \
        FILE *s = stream("r+"); \
        CHECK(#name, condition); CHECK(#name, fclose(s) == 0); \
        model_write(text, strlen(text), 0); same(#name); } while (0)
/* The same on a standard descriptor of a child. */
#define CHILD(name, number, status, condition) do { \
        int fd = opened(O_RDWR), result; \
        pid_t child = fork(); \
        if (child == 0) { dup2(fd, number); if (!(condition)) _exit(99); fflush(NULL); _exit(status); } \
        CHECK(#name, waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == (status)); \
        close(fd); } while (0)
#define STDIN(name, condition) do { CHILD(name, 0, 0, condition); same(#name); } while (0)
#define STDOUT(name, text, condition) do { \
        CHILD(name, 1, 0, condition); model_write(text, strlen(text), 0); same(#name); } while (0)
#define STDERR(name, text, status, call) do { \
        CHILD(name, 2, status, ((call), 1)); model_write(text, strlen(text), 0); same(#name); } while (0)
/* A call on the path of the file. */
#define PATH(name, condition) do { \
        content(TEXT, SIZE - sizeof TEXT + 1); unlink(other); \
        CHECK(#name, condition); same(#name); } while (0)

/* The functions with a va_list, by name. */
static int v_out(const char *name, FILE *s, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(FILE *, const char *, va_list))found(name))(s, format, list);
    va_end(list);
    return n;
}
static int v_out_chk(const char *name, FILE *s, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(FILE *, int, const char *, va_list))found(name))(s, 1, format, list);
    va_end(list);
    return n;
}
static int v_std(const char *name, const void *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(const void *, va_list))found(name))(format, list);
    va_end(list);
    return n;
}
static int v_std_chk(const char *name, const void *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(int, const void *, va_list))found(name))(1, format, list);
    va_end(list);
    return n;
}
static int v_fd(const char *name, int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(int, const char *, va_list))found(name))(fd, format, list);
    va_end(list);
    return n;
}
static int v_fd_chk(const char *name, int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(int, int, const char *, va_list))found(name))(fd, 1, format, list);
    va_end(list);
    return n;
}
static int v_end(const char *name, int status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    ((void (*)(int, const char *, va_list))found(name))(status, format, list);
    va_end(list);
    return 1;
}
static int v_warn(const char *name, const char *format, ...) {
    va_list list;
    va_start(list, format);
    ((void (*)(const char *, va_list))found(name))(format, list);
    va_end(list);
    return 1;
}
static int v_wout(const char *name, FILE *s, const wchar_t *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(FILE *, const wchar_t *, va_list))found(name))(s, format, list);
    va_end(list);
    return n;
}
static int v_wout_chk(const char *name, FILE *s, const wchar_t *format, ...) {
    va_list list;
    va_start(list, format);
    int n = ((int (*)(FILE *, int, const wchar_t *, va_list))found(name))(s, 1, format, list);
    va_end(list);
    return n;
}

static char word[100];
static wchar_t wword[100];
static int number;
static int scanned(int fields) { return fields == 2 && strcmp(word, "alpha") == 0 && number == 12; }
static int wscanned(int fields) { return fields == 2 && wcscmp(wword, L"alpha") == 0 && number == 12; }
static void clear(void) { memset(word, 0, sizeof word); memset(wword, 0, sizeof wword); number = 0; memset(seen, 0, 200); }

static void reading(void) {
    char *line = NULL;
    size_t room = 0;
    fpos_t at;
    fpos64_t at64;
    /* Characters. */
    IN(fgetc, F(fgetc)(s) == 'a');
    IN(fgetc_unlocked, F(fgetc_unlocked)(s) == 'a');
    IN(getc, F(getc)(s) == 'a');
    IN(getc_unlocked, F(getc_unlocked)(s) == 'a');
    IN(_IO_getc, G(_IO_getc, int, FILE *)(s) == 'a');
    IN(_IO_peekc_locked, G(_IO_peekc_locked, int, FILE *)(s) == 'a' && fgetc(s) == 'a');
    IN(__uflow, G(__uflow, int, FILE *)(s) == 'a');
    IN(__underflow, G(__underflow, int, FILE *)(s) == 'a');
    IN(_IO_default_uflow, G(_IO_default_uflow, int, FILE *)(s) == 'a');
    IN(_IO_file_underflow, G(_IO_file_underflow, int, FILE *)(s) == 'a');
    IN(getw, F(getw)(s) == *(int *)TEXT);
    IN(ungetc, F(ungetc)('z', s) == 'z' && fgetc(s) == 'z' && fgetc(s) == 'a');
    IN(_IO_ungetc, G(_IO_ungetc, int, int, FILE *)('z', s) == 'z' && fgetc(s) == 'z' && fgetc(s) == 'a');
    IN(_IO_default_pbackfail, fgetc(s) == 'a' && G(_IO_default_pbackfail, int, FILE *, int)(s, 'a') == 'a' && fgetc(s) == 'a');
    IN(fgetwc, F(fgetwc)(s) == L'a');
    IN(fgetwc_unlocked, F(fgetwc_unlocked)(s) == L'a');
    IN(getwc, F(getwc)(s) == L'a');
    IN(getwc_unlocked, F(getwc_unlocked)(s) == L'a');
    IN(__wuflow, fwide(s, 1) > 0 && G(__wuflow, wint_t, FILE *)(s) == L'a');
    IN(__wunderflow, fwide(s, 1) > 0 && G(__wunderflow, wint_t, FILE *)(s) == L'a');
    IN(_IO_wfile_underflow, fwide(s, 1) > 0 && G(_IO_wfile_underflow, wint_t, FILE *)(s) == L'a');
    IN(ungetwc, F(ungetwc)(L'z', s) == L'z' && fgetwc(s) == L'z' && fgetwc(s) == L'a');
    IN(fwide, F(fwide)(s, 1) > 0 && fgetwc(s) == L'a');
    /* Lines. */
#define LINE(name, condition) IN(name, (clear(), condition) && memcmp(seen, "alpha 12\n", 9) == 0)
    LINE(fgets, F(fgets)(seen, 100, s) == seen);
    LINE(fgets_unlocked, F(fgets_unlocked)(seen, 100, s) == seen);
    LINE(_IO_fgets, G(_IO_fgets, char *, char *, int, FILE *)(seen, 100, s) == seen);
    LINE(__fgets_chk, G(__fgets_chk, char *, char *, size_t, int, FILE *)(seen, 100, 100, s) == seen);
    LINE(__fgets_unlocked_chk, G(__fgets_unlocked_chk, char *, char *, size_t, int, FILE *)(seen, 100, 100, s) == seen);
    LINE(_IO_getline, G(_IO_getline, size_t, FILE *, char *, size_t, int, int)(s, seen, 99, '\n', 1) == 9);
    LINE(_IO_getline_info, G(_IO_getline_info, size_t, FILE *, char *, size_t, int, int, int *)(s, seen, 99, '\n', 1, &number) == 9);
    IN(getline, F(getline)(&line, &room, s) == 9 && strcmp(line, "alpha 12\n") == 0);
    IN(getdelim, F(getdelim)(&line, &room, ' ', s) == 6 && strcmp(line, "alpha ") == 0);
    IN(__getdelim, G(__getdelim, ssize_t, char **, size_t *, int, FILE *)(&line, &room, ' ', s) == 6 && strcmp(line, "alpha ") == 0);
#define WLINE(name, condition) IN(name, (clear(), condition) && wcscmp(wword, L"alpha 12\n") == 0)
    WLINE(fgetws, F(fgetws)(wword, 100, s) == wword);
    WLINE(fgetws_unlocked, F(fgetws_unlocked)(wword, 100, s) == wword);
    WLINE(__fgetws_chk, G(__fgetws_chk, wchar_t *, wchar_t *, size_t, int, FILE *)(wword, 100, 100, s) == wword);
    WLINE(__fgetws_unlocked_chk, G(__fgetws_unlocked_chk, wchar_t *, wchar_t *, size_t, int, FILE *)(wword, 100, 100, s) == wword);
    /* Blocks, over several stripes. */
#define BLOCK(name, condition) IN(name, (clear(), condition) && memcmp(seen, model, 12000) == 0)
    BLOCK(fread, F(fread)(seen, 1, 12000, s) == 12000);
    BLOCK(fread_unlocked, F(fread_unlocked)(seen, 1, 12000, s) == 12000);
    BLOCK(_IO_fread, G(_IO_fread, size_t, void *, size_t, size_t, FILE *)(seen, 1, 12000, s) == 12000);
    BLOCK(__fread_chk, G(__fread_chk, size_t, void *, size_t, size_t, size_t, FILE *)(seen, SIZE, 1, 12000, s) == 12000);
    BLOCK(__fread_unlocked_chk, G(__fread_unlocked_chk, size_t, void *, size_t, size_t, size_t, FILE *)(seen, SIZE, 1, 12000, s) == 12000);
    BLOCK(_IO_sgetn, G(_IO_sgetn, size_t, FILE *, void *, size_t)(s, seen, 12000) == 12000);
    BLOCK(_IO_default_xsgetn, G(_IO_default_xsgetn, size_t, FILE *, void *, size_t)(s, seen, 12000) == 12000);
    BLOCK(_IO_file_read, G(_IO_file_read, ssize_t, FILE *, void *, ssize_t)(s, seen, 12000) == 12000);
    /* Numbers and words. */
#define SCAN "%s %d", word, &number
    IN(fscanf, (clear(), scanned(F(fscanf)(s, SCAN))));
    IN(__isoc99_fscanf, (clear(), scanned(G(__isoc99_fscanf, int, FILE *, const char *, ...)(s, SCAN))));
    IN(vfscanf, (clear(), scanned(v_out("vfscanf", s, SCAN))));
    IN(__vfscanf, (clear(), scanned(v_out("__vfscanf", s, SCAN))));
    IN(__isoc99_vfscanf, (clear(), scanned(v_out("__isoc99_vfscanf", s, SCAN))));
#define WSCAN L"%ls %d", wword, &number
    IN(fwscanf, (clear(), wscanned(F(fwscanf)(s, WSCAN))));
    IN(__isoc99_fwscanf, (clear(), wscanned(G(__isoc99_fwscanf, int, FILE *, const wchar_t *, ...)(s, WSCAN))));
    IN(vfwscanf, (clear(), wscanned(v_wout("vfwscanf", s, WSCAN))));
    IN(__isoc99_vfwscanf, (clear(), wscanned(v_wout("__isoc99_vfwscanf", s, WSCAN))));
    /* Standard input. */
    STDIN(getchar, F(getchar)() == 'a');
    STDIN(getchar_unlocked, F(getchar_unlocked)() == 'a');
    STDIN(getwchar, F(getwchar)() == L'a');
    STDIN(getwchar_unlocked, F(getwchar_unlocked)() == L'a');
    STDIN(gets, G(gets, char *, char *)(seen) == seen && strcmp(seen, "alpha 12") == 0);
    STDIN(_IO_gets, G(_IO_gets, char *, char *)(seen) == seen && strcmp(seen, "alpha 12") == 0);
    STDIN(scanf, scanned(F(scanf)(SCAN)));
    STDIN(__isoc99_scanf, scanned(G(__isoc99_scanf, int, const char *, ...)(SCAN)));
    STDIN(vscanf, scanned(v_std("vscanf", SCAN)));
    STDIN(__isoc99_vscanf, scanned(v_std("__isoc99_vscanf", SCAN)));
    STDIN(wscanf, wscanned(F(wscanf)(WSCAN)));
    STDIN(__isoc99_wscanf, wscanned(G(__isoc99_wscanf, int, const wchar_t *, ...)(WSCAN)));
    STDIN(vwscanf, wscanned(v_std("vwscanf", WSCAN)));
    STDIN(__isoc99_vwscanf, wscanned(v_std("__isoc99_vwscanf", WSCAN)));
    /* Positions. */
    IN(ftell, fgetc(s) == 'a' && F(ftell)(s) == 1);
    IN(ftello, fgetc(s) == 'a' && F(ftello)(s) == 1);
    IN(ftello64, fgetc(s) == 'a' && F(ftello64)(s) == 1);
    IN(_IO_ftell, fgetc(s) == 'a' && G(_IO_ftell, long, FILE *)(s) == 1);
    IN(fseek, F(fseek)(s, 9000, SEEK_SET) == 0 && fgetc(s) == model[9000]);
    IN(fseeko, F(fseeko)(s, 9000, SEEK_SET) == 0 && fgetc(s) == model[9000]);
    IN(fseeko64, F(fseeko64)(s, 9000, SEEK_SET) == 0 && fgetc(s) == model[9000]);
    IN(_IO_seekoff, G(_IO_seekoff, off_t, FILE *, off_t, int, int)(s, 9000, SEEK_SET, 1) == 9000 && fgetc(s) == model[9000]);
    IN(_IO_seekpos, G(_IO_seekpos, off_t, FILE *, off_t, int)(s, 9000, 1) == 9000 && fgetc(s) == model[9000]);
    IN(_IO_file_seekoff, G(_IO_file_seekoff, off_t, FILE *, off_t, int, int)(s, 9000, SEEK_SET, 1) == 9000 && fgetc(s) == model[9000]);
    IN(_IO_wfile_seekoff, fwide(s, 1) > 0 && fgetwc(s) == L'a' && G(_IO_wfile_seekoff, off_t, FILE *, off_t, int, int)(s, 9000, SEEK_SET, 1) == 9000 && fgetwc(s) == model[9000]);
    IN(_IO_file_seek, G(_IO_file_seek, off_t, FILE *, off_t, int)(s, 9000, SEEK_SET) == 9000 && read(fileno(s), seen, 1) == 1 && seen[0] == model[9000]);
    IN(rewind, fgetc(s) == 'a' && (F(rewind)(s), fgetc(s) == 'a'));
    IN(fgetpos, fgetc(s) == 'a' && F(fgetpos)(s, &at) == 0 && fgetc(s) == 'l' && fsetpos(s, &at) == 0 && fgetc(s) == 'l');
    IN(fsetpos, fgetc(s) == 'a' && fgetpos(s, &at) == 0 && fgetc(s) == 'l' && F(fsetpos)(s, &at) == 0 && fgetc(s) == 'l');
    IN(fgetpos64, fgetc(s) == 'a' && F(fgetpos64)(s, &at64) == 0 && fgetc(s) == 'l' && fsetpos64(s, &at64) == 0 && fgetc(s) == 'l');
    IN(fsetpos64, fgetc(s) == 'a' && fgetpos64(s, &at64) == 0 && fgetc(s) == 'l' && F(fsetpos64)(s, &at64) == 0 && fgetc(s) == 'l');
    IN(_IO_fgetpos, fgetc(s) == 'a' && G(_IO_fgetpos, int, FILE *, fpos_t *)(s, &at) == 0 && fgetc(s) == 'l' && fsetpos(s, &at) == 0 && fgetc(s) == 'l');
    IN(_IO_fsetpos, fgetc(s) == 'a' && fgetpos(s, &at) == 0 && fgetc(s) == 'l' && G(_IO_fsetpos, int, FILE *, fpos_t *)(s, &at) == 0 && fgetc(s) == 'l');
    IN(_IO_fgetpos64, fgetc(s) == 'a' && G(_IO_fgetpos64, int, FILE *, fpos64_t *)(s, &at64) == 0 && fgetc(s) == 'l' && fsetpos64(s, &at64) == 0 && fgetc(s) == 'l');
    IN(_IO_fsetpos64, fgetc(s) == 'a' && fgetpos64(s, &at64) == 0 && fgetc(s) == 'l' && G(_IO_fsetpos64, int, FILE *, fpos64_t *)(s, &at64) == 0 && fgetc(s) == 'l');
    /* The state of a stream, before and behind the end that only the library knew. */
#define END(name, condition) IN(name, fread(seen, 1, SIZE + 1, s) == SIZE && (condition))
    END(feof, F(feof)(s));
    END(feof_unlocked, F(feof_unlocked)(s));
    END(_IO_feof, G(_IO_feof, int, FILE *)(s));
    END(ferror, !F(ferror)(s) && fputc('x', s) == EOF && F(ferror)(s));
    END(ferror_unlocked, !F(ferror_unlocked)(s) && fputc('x', s) == EOF && F(ferror_unlocked)(s));
    END(_IO_ferror, !G(_IO_ferror, int, FILE *)(s) && fputc('x', s) == EOF && G(_IO_ferror, int, FILE *)(s));
    END(clearerr, feof(s) && (F(clearerr)(s), !feof(s)));
    END(clearerr_unlocked, feof(s) && (F(clearerr_unlocked)(s), !feof(s)));
    struct stat st;
    IN(fileno, fstat(F(fileno)(s), &st) == 0 && st.st_size == SIZE);
    IN(fileno_unlocked, fstat(F(fileno_unlocked)(s), &st) == 0 && st.st_size == SIZE);
    IN(_IO_file_stat, G(_IO_file_stat, int, FILE *, struct stat *)(s, &st) == 0 && st.st_size == SIZE);
    IN(flockfile, (F(flockfile)(s), getc_unlocked(s)) == 'a' && (funlockfile(s), 1));
    IN(ftrylockfile, F(ftrylockfile)(s) == 0 && getc_unlocked(s) == 'a' && (funlockfile(s), 1));
    IN(funlockfile, (flockfile(s), getc_unlocked(s)) == 'a' && (F(funlockfile)(s), fgetc(s) == 'l'));
    IN(__fbufsize, fgetc(s) == 'a' && F(__fbufsize)(s) > 0 && fgetc(s) == 'l');
    IN(__flbf, !F(__flbf)(s) && fgetc(s) == 'a');
    IN(__freadable, F(__freadable)(s) && fgetc(s) == 'a');
    IN(__freading, fgetc(s) == 'a' && F(__freading)(s));
    IN(__fwritable, !F(__fwritable)(s) && fgetc(s) == 'a');
    IN(__fwriting, !F(__fwriting)(s) && fgetc(s) == 'a');
    IN(__fsetlocking, F(__fsetlocking)(s, FSETLOCKING_BYCALLER) == FSETLOCKING_INTERNAL && fgetc(s) == 'a');
    IN(__fpurge, fgetc(s) == 'a' && fseek(s, 9000, SEEK_SET) == 0 && (F(__fpurge)(s), 1));
    IN(setbuf, (F(setbuf)(s, NULL), fgetc(s) == 'a') && lseek(fileno(s), 0, SEEK_CUR) == 1);
    IN(setbuffer, (F(setbuffer)(s, word, 10), fgetc(s) == 'a') && lseek(fileno(s), 0, SEEK_CUR) == 10);
    IN(setlinebuf, (F(setlinebuf)(s), fgetc(s) == 'a'));
    IN(setvbuf, F(setvbuf)(s, NULL, _IONBF, 0) == 0 && fgetc(s) == 'a' && lseek(fileno(s), 0, SEEK_CUR) == 1);
    IN(_IO_setbuffer, (G(_IO_setbuffer, void, FILE *, char *, size_t)(s, word, 10), fgetc(s) == 'a') && lseek(fileno(s), 0, SEEK_CUR) == 10);
    IN(_IO_setvbuf, G(_IO_setvbuf, int, FILE *, char *, int, size_t)(s, NULL, _IONBF, 0) == 0 && fgetc(s) == 'a' && lseek(fileno(s), 0, SEEK_CUR) == 1);
    IN(_IO_file_setbuf, G(_IO_file_setbuf, FILE *, FILE *, char *, ssize_t)(s, word, 10) == s && fgetc(s) == 'a' && lseek(fileno(s), 0, SEEK_CUR) == 10);
    IN(_IO_doallocbuf, (G(_IO_doallocbuf, void, FILE *)(s), fgetc(s) == 'a'));
    IN(_IO_file_doallocate, G(_IO_file_doallocate, int, FILE *)(s) == 1 && fgetc(s) == 'a');
    IN(_IO_default_doallocate, G(_IO_default_doallocate, int, FILE *)(s) == 1 && fgetc(s) == 'a');
    free(line);
}

static void writing(void) {
    OUT(fputc, "W", F(fputc)('W', s) == 'W');
    OUT(fputc_unlocked, "W", F(fputc_unlocked)('W', s) == 'W');
    OUT(putc, "W", F(putc)('W', s) == 'W');
    OUT(putc_unlocked, "W", F(putc_unlocked)('W', s) == 'W');
    OUT(_IO_putc, "W", G(_IO_putc, int, int, FILE *)('W', s) == 'W');
    OUT(__overflow, "W", G(__overflow, int, FILE *, int)(s, 'W') == 'W');
    OUT(_IO_file_overflow, "W", G(_IO_file_overflow, int, FILE *, int)(s, 'W') == 'W');
    OUT(putw, "WORD", F(putw)(*(int *)"WORD", s) == 0);
    OUT(fputwc, "W", F(fputwc)(L'W', s) == L'W');
    OUT(fputwc_unlocked, "W", F(fputwc_unlocked)(L'W', s) == L'W');
    OUT(putwc, "W", F(putwc)(L'W', s) == L'W');
    OUT(putwc_unlocked, "W", F(putwc_unlocked)(L'W', s) == L'W');
    OUT(__woverflow, "W", fwide(s, 1) > 0 && G(__woverflow, wint_t, FILE *, wint_t)(s, L'W') == L'W');
    OUT(_IO_wfile_overflow, "W", fwide(s, 1) > 0 && G(_IO_wfile_overflow, wint_t, FILE *, wint_t)(s, L'W') == L'W');
    OUT(fputs, "words", F(fputs)("words", s) >= 0);
    OUT(fputs_unlocked, "words", F(fputs_unlocked)("words", s) >= 0);
    OUT(_IO_fputs, "words", G(_IO_fputs, int, const char *, FILE *)("words", s) >= 0);
    OUT(fputws, "words", F(fputws)(L"words", s) >= 0);
    OUT(fputws_unlocked, "words", F(fputws_unlocked)(L"words", s) >= 0);
    OUT(_IO_padn, "wwwwww", G(_IO_padn, ssize_t, FILE *, int, ssize_t)(s, 'w', 6) == 6);
    OUT(fwrite, "words", F(fwrite)("words", 1, 5, s) == 5);
    OUT(fwrite_unlocked, "words", F(fwrite_unlocked)("words", 1, 5, s) == 5);
    OUT(_IO_fwrite, "words", G(_IO_fwrite, size_t, const void *, size_t, size_t, FILE *)("words", 1, 5, s) == 5);
    OUT(_IO_file_xsputn, "words", G(_IO_file_xsputn, size_t, FILE *, const void *, size_t)(s, "words", 5) == 5);
    OUT(_IO_default_xsputn, "words", G(_IO_default_xsputn, size_t, FILE *, const void *, size_t)(s, "words", 5) == 5);
    OUT(_IO_wfile_xsputn, "words", fwide(s, 1) > 0 && G(_IO_wfile_xsputn, size_t, FILE *, const void *, size_t)(s, L"words", 5) == 5);
    OUT(_IO_file_write, "words", G(_IO_file_write, ssize_t, FILE *, const void *, ssize_t)(s, "words", 5) == 5);
    OUT(_IO_do_write, "words", G(_IO_do_write, int, FILE *, const char *, size_t)(s, "words", 5) == 0);
    OUT(_IO_wdo_write, "words", fwide(s, 1) > 0 && G(_IO_wdo_write, int, FILE *, const wchar_t *, size_t)(s, L"words", 5) == 0);
    OUT(fprintf, "n 12", F(fprintf)(s, "%s %d", "n", 12) == 4);
    OUT(_IO_fprintf, "n 12", G(_IO_fprintf, int, FILE *, const char *, ...)(s, "%s %d", "n", 12) == 4);
    OUT(__fprintf_chk, "n 12", G(__fprintf_chk, int, FILE *, int, const char *, ...)(s, 1, "%s %d", "n", 12) == 4);
    OUT(vfprintf, "n 12", v_out("vfprintf", s, "%s %d", "n", 12) == 4);
    OUT(_IO_vfprintf, "n 12", v_out("_IO_vfprintf", s, "%s %d", "n", 12) == 4);
    OUT(__vfprintf_chk, "n 12", v_out_chk("__vfprintf_chk", s, "%s %d", "n", 12) == 4);
    OUT(fwprintf, "n 12", F(fwprintf)(s, L"%s %d", "n", 12) == 4);
    OUT(__fwprintf_chk, "n 12", G(__fwprintf_chk, int, FILE *, int, const wchar_t *, ...)(s, 1, L"%s %d", "n", 12) == 4);
    OUT(vfwprintf, "n 12", v_wout("vfwprintf", s, L"%s %d", "n", 12) == 4);
    OUT(__vfwprintf_chk, "n 12", v_wout_chk("__vfwprintf_chk", s, L"%s %d", "n", 12) == 4);
#define DP(name, condition) do { \
        int fd = opened(O_RDWR); \
        CHECK(#name, (condition) == 4 && close(fd) == 0); model_write("n 12", 4, 0); same(#name); } while (0)
    DP(dprintf, F(dprintf)(fd, "%s %d", "n", 12));
    DP(__dprintf_chk, G(__dprintf_chk, int, int, int, const char *, ...)(fd, 1, "%s %d", "n", 12));
    DP(vdprintf, v_fd("vdprintf", fd, "%s %d", "n", 12));
    DP(__vdprintf_chk, v_fd_chk("__vdprintf_chk", fd, "%s %d", "n", 12));
    /* What makes stdio write: seen in the file while the stream is open. */
#define FLUSH(name, condition) OUT(name, "words", fputs("words", s) >= 0 && (condition) && pread(fileno(s), seen, 5, 0) == 5 && memcmp(seen, "words", 5) == 0)
    FLUSH(fflush, F(fflush)(s) == 0);
    FLUSH(fflush_unlocked, F(fflush_unlocked)(s) == 0);
    FLUSH(_IO_fflush, G(_IO_fflush, int, FILE *)(s) == 0);
    FLUSH(_IO_file_sync, G(_IO_file_sync, int, FILE *)(s) == 0);
    FLUSH(_IO_flush_all, G(_IO_flush_all, int, void)() == 0);
    FLUSH(_flushlbf, (setlinebuf(s), F(_flushlbf)(), 1));
    FLUSH(_IO_flush_all_linebuffered, (setlinebuf(s), G(_IO_flush_all_linebuffered, void, void)(), 1));
    OUT(_IO_wfile_sync, "words", fputws(L"words", s) >= 0 && G(_IO_wfile_sync, int, FILE *)(s) == 0 && pread(fileno(s), seen, 5, 0) == 5 && memcmp(seen, "words", 5) == 0);
    OUT(__fpending, "words", fputs("words", s) >= 0 && F(__fpending)(s) == 5);
    /* Standard output. */
    STDOUT(putchar, "W", F(putchar)('W') == 'W');
    STDOUT(putchar_unlocked, "W", F(putchar_unlocked)('W') == 'W');
    STDOUT(puts, "words\n", F(puts)("words") >= 0);
    STDOUT(_IO_puts, "words\n", G(_IO_puts, int, const char *)("words") >= 0);
    STDOUT(printf, "n 12", F(printf)("%s %d", "n", 12) == 4);
    STDOUT(_IO_printf, "n 12", G(_IO_printf, int, const char *, ...)("%s %d", "n", 12) == 4);
    STDOUT(__printf_chk, "n 12", G(__printf_chk, int, int, const char *, ...)(1, "%s %d", "n", 12) == 4);
    STDOUT(vprintf, "n 12", v_std("vprintf", "%s %d", "n", 12) == 4);
    STDOUT(__vprintf_chk, "n 12", v_std_chk("__vprintf_chk", "%s %d", "n", 12) == 4);
    /* stdout already has bytes in it, so wide ones go to a stream that takes its place. */
#define WIDE (stdout = fdopen(1, "r+"), 1)
    STDOUT(putwchar, "W", WIDE && F(putwchar)(L'W') == L'W');
    STDOUT(putwchar_unlocked, "W", WIDE && F(putwchar_unlocked)(L'W') == L'W');
    STDOUT(wprintf, "n 12", WIDE && F(wprintf)(L"%s %d", "n", 12) == 4);
    STDOUT(__wprintf_chk, "n 12", WIDE && G(__wprintf_chk, int, int, const wchar_t *, ...)(1, L"%s %d", "n", 12) == 4);
    STDOUT(vwprintf, "n 12", WIDE && v_std("vwprintf", L"%s %d", "n", 12) == 4);
    STDOUT(__vwprintf_chk, "n 12", WIDE && v_std_chk("__vwprintf_chk", L"%s %d", "n", 12) == 4);
    /* Standard error. */
#define ENOENT_TEXT "No such file or directory\n"
    STDERR(perror, "here: " ENOENT_TEXT, 0, (errno = ENOENT, F(perror)("here")));
    STDERR(psignal, "here: Hangup\n", 0, F(psignal)(SIGHUP, "here"));
    siginfo_t info = {.si_signo = SIGHUP, .si_code = SI_USER};
    STDERR(psiginfo, "here: Hangup (Signal sent by kill() 0 0)\n", 0, F(psiginfo)(&info, "here"));
    errno = ENOENT;
    STDERR(warn, "prog: n 12: " ENOENT_TEXT, 0, (errno = ENOENT, F(warn)("%s %d", "n", 12)));
    STDERR(warnx, "prog: n 12\n", 0, F(warnx)("%s %d", "n", 12));
    STDERR(vwarn, "prog: n 12: " ENOENT_TEXT, 0, (errno = ENOENT, v_warn("vwarn", "%s %d", "n", 12)));
    STDERR(vwarnx, "prog: n 12\n", 0, v_warn("vwarnx", "%s %d", "n", 12));
    STDERR(err, "prog: n 12: " ENOENT_TEXT, 7, (errno = ENOENT, F(err)(7, "%s %d", "n", 12)));
    STDERR(errx, "prog: n 12\n", 7, F(errx)(7, "%s %d", "n", 12));
    STDERR(verr, "prog: n 12: " ENOENT_TEXT, 7, (errno = ENOENT, v_end("verr", 7, "%s %d", "n", 12)));
    STDERR(verrx, "prog: n 12\n", 7, v_end("verrx", 7, "%s %d", "n", 12));
    STDERR(error, "prog: n 12: " ENOENT_TEXT, 7, F(error)(7, ENOENT, "%s %d", "n", 12));
    STDERR(error_at_line, "prog:f:3: n 12: " ENOENT_TEXT, 7, F(error_at_line)(7, ENOENT, "f", 3, "%s %d", "n", 12));
    /* Databases. */
    struct passwd user = {"u", "x", 1, 2, "g", "/", "/sh"};
    OUT(putpwent, "u:x:1:2:g:/:/sh\n", F(putpwent)(&user, s) == 0);
    char *none[] = {NULL};
    struct group group = {"g", "x", 1, none};
    OUT(putgrent, "g:x:1:\n", F(putgrent)(&group, s) == 0);
    struct spwd shadow = {"u", "x", 1, 2, 3, 4, 5, 6, -1};
    OUT(putspent, "u:x:1:2:3:4:5:6:\n", F(putspent)(&shadow, s) == 0);
    struct sgrp secret = {"g", "x", none, none};
    OUT(putsgent, "g:x::\n", F(putsgent)(&secret, s) == 0);
    struct mntent mount = {"dev", "/dir", "type", "opts", 1, 2};
    FILE *s = stream("r+");
    size_t end = model_size;
    CHECK("addmntent", F(addmntent)(s, &mount) == 0 && fclose(s) == 0);
    model_write("dev /dir type opts 1 2\n", 23, end);
    same("addmntent");
    s = stream("r+");
    CHECK("malloc_info", F(malloc_info)(0, s) == 0 && ftell(s) > 100 && fclose(s) == 0);
    int fd = open(in_pool, O_RDONLY);
    CHECK("malloc_info", pread(fd, seen, 7, 0) == 7 && memcmp(seen, "<malloc", 7) == 0 && close(fd) == 0);
    ok("malloc_info");
    fd = opened(O_RDWR);
    void *frames[] = {found("read")};
    F(backtrace_symbols_fd)(frames, 1, fd);
    off_t once = lseek(fd, 0, SEEK_CUR);
    G(__backtrace_symbols_fd, void, void **, int, int)(frames, 1, fd);
    CHECK("backtrace_symbols_fd", once > 5 && lseek(fd, 0, SEEK_CUR) == 2 * once && pread(fd, seen, 2 * once, 0) == 2 * once);
    CHECK("backtrace_symbols_fd", memcmp(seen, seen + once, once) == 0 && memchr(seen, '(', once) && close(fd) == 0);
    ok("backtrace_symbols_fd"); ok("__backtrace_symbols_fd");
}

/* Files whose lines glibc reads by itself. */
#define LINES(name, text, condition) do { \
        content(text, 0); \
        FILE *s = fopen(in_pool, "r"); \
        CHECK(#name, s && (condition)); CHECK(#name, fclose(s) == 0); same(#name); } while (0)

static void databases(void) {
    static struct passwd user, *pw;
    static struct group group, *gr;
    static struct spwd shadow, *sp;
    static struct sgrp secret, *sg;
    static struct mntent mount, *mnt;
    static char room[2000];
    LINES(fgetpwent, "u:x:1:2:g:/:/sh\n", (pw = F(fgetpwent)(s)) && strcmp(pw->pw_shell, "/sh") == 0);
    LINES(fgetpwent_r, "u:x:1:2:g:/:/sh\n", F(fgetpwent_r)(s, &user, room, 2000, &pw) == 0 && strcmp(pw->pw_shell, "/sh") == 0);
    LINES(fgetgrent, "g:x:11:\n", (gr = F(fgetgrent)(s)) && gr->gr_gid == 11);
    LINES(fgetgrent_r, "g:x:11:\n", F(fgetgrent_r)(s, &group, room, 2000, &gr) == 0 && gr->gr_gid == 11);
    LINES(fgetspent, "u:x:1:2:3:4:5:6:\n", (sp = F(fgetspent)(s)) && sp->sp_max == 3);
    LINES(fgetspent_r, "u:x:1:2:3:4:5:6:\n", F(fgetspent_r)(s, &shadow, room, 2000, &sp) == 0 && sp->sp_max == 3);
    LINES(fgetsgent, "g:xyz::\n", (sg = F(fgetsgent)(s)) && strcmp(sg->sg_passwd, "xyz") == 0);
    LINES(fgetsgent_r, "g:xyz::\n", F(fgetsgent_r)(s, &secret, room, 2000, &sg) == 0 && strcmp(sg->sg_passwd, "xyz") == 0);
    LINES(getmntent, "dev /dir type opts 1 2\n", (mnt = F(getmntent)(s)) && strcmp(mnt->mnt_dir, "/dir") == 0);
    LINES(getmntent_r, "dev /dir type opts 1 2\n", (mnt = F(getmntent_r)(s, &mount, room, 2000)) && strcmp(mnt->mnt_dir, "/dir") == 0);
    LINES(__getmntent_r, "dev /dir type opts 1 2\n", (mnt = G(__getmntent_r, void *, FILE *, void *, char *, int)(s, &mount, room, 2000)) && strcmp(mnt->mnt_dir, "/dir") == 0);
    FILE *table;
    LINES(setmntent, "dev /dir type opts 1 2\n", (table = F(setmntent)(in_pool, "r")) && (mnt = getmntent(table)) && strcmp(mnt->mnt_dir, "/dir") == 0 && endmntent(table) == 1);
    LINES(__setmntent, "dev /dir type opts 1 2\n", (table = G(__setmntent, FILE *, const char *, const char *)(in_pool, "r")) && (mnt = getmntent(table)) && strcmp(mnt->mnt_dir, "/dir") == 0 && endmntent(table) == 1);
}

static void descriptors(void) {
    struct stat st;
    struct stat64 st64;
    struct statx stx;
    struct statfs fs;
    struct statfs64 fs64;
    struct statvfs vfs;
    struct statvfs64 vfs64;
#define SIZED (st.st_size == SIZE)
    FD(fstat, F(fstat)(fd, &st) == 0 && SIZED);
    FD(fstat64, F(fstat64)(fd, &st64) == 0 && st64.st_size == SIZE);
    FD(__fxstat, G(__fxstat, int, int, int, void *)(1, fd, &st) == 0 && SIZED);
    FD(__fxstat64, G(__fxstat64, int, int, int, void *)(1, fd, &st64) == 0 && st64.st_size == SIZE);
    FD(fstatat, F(fstatat)(AT_FDCWD, in_pool, &st, 0) == 0 && SIZED && F(fstatat)(fd, "", &st, AT_EMPTY_PATH) == 0 && SIZED);
    FD(fstatat64, F(fstatat64)(fd, "", &st64, AT_EMPTY_PATH) == 0 && st64.st_size == SIZE);
    FD(__fxstatat, G(__fxstatat, int, int, int, const char *, void *, int)(1, fd, "", &st, AT_EMPTY_PATH) == 0 && SIZED);
    FD(__fxstatat64, G(__fxstatat64, int, int, int, const char *, void *, int)(1, fd, "", &st64, AT_EMPTY_PATH) == 0 && st64.st_size == SIZE);
    FD(statx, F(statx)(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx) == 0 && stx.stx_size == SIZE);
    FD(fstatfs, F(fstatfs)(fd, &fs) == 0 && fs.f_blocks > 0);
    FD(fstatfs64, F(fstatfs64)(fd, &fs64) == 0 && fs64.f_blocks > 0);
    FD(fstatvfs, F(fstatvfs)(fd, &vfs) == 0 && vfs.f_blocks > 0);
    FD(fstatvfs64, F(fstatvfs64)(fd, &vfs64) == 0 && vfs64.f_blocks > 0);
    FD(fpathconf, F(fpathconf)(fd, _PC_NAME_MAX) > 100);
    FD(fchmod, F(fchmod)(fd, 0640) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0640);
    FD(fchown, F(fchown)(fd, geteuid(), getegid()) == 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid());
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    struct timeval values[2] = {{1000, 0}, {2000, 0}};
#define TIMED (fstat(fd, &st) == 0 && st.st_mtime == 2000)
    FD(futimens, F(futimens)(fd, times) == 0 && TIMED);
    FD(futimes, F(futimes)(fd, values) == 0 && TIMED);
    FD(futimesat, F(futimesat)(AT_FDCWD, in_pool, values) == 0 && TIMED);
    FD(utimensat, F(utimensat)(AT_FDCWD, in_pool, times, 0) == 0 && TIMED);
    FD(utimes, F(utimes)(in_pool, values) == 0 && TIMED);
    FD(lutimes, F(lutimes)(in_pool, values) == 0 && TIMED);
    struct utimbuf buf = {1000, 2000};
    FD(utime, F(utime)(in_pool, &buf) == 0 && TIMED);
    FD(fsync, F(fsync)(fd) == 0);
    FD(fdatasync, F(fdatasync)(fd) == 0);
    FD(syncfs, F(syncfs)(fd) == 0);
    FD(sync, (F(sync)(), 1));
    FD(sync_file_range, F(sync_file_range)(fd, 0, 9000, SYNC_FILE_RANGE_WRITE) == 0 || errno == ESPIPE || errno == EINVAL || errno == ENOSYS);
    FD(posix_fadvise, F(posix_fadvise)(fd, 0, 9000, POSIX_FADV_WILLNEED) == 0);
    FD(posix_fadvise64, F(posix_fadvise64)(fd, 0, 9000, POSIX_FADV_DONTNEED) == 0);
    FD(readahead, F(readahead)(fd, 0, 9000) == 0 || errno == EINVAL);
    FD(lseek, F(lseek)(fd, 0, SEEK_END) == SIZE);
    FD(lseek64, F(lseek64)(fd, 0, SEEK_END) == SIZE);
    FD(__lseek, G(__lseek, off_t, int, off_t, int)(fd, 0, SEEK_END) == SIZE);
#define RESIZE(name, size, condition) do { \
        int fd = opened(O_RDWR); \
        CHECK(#name, (condition) && close(fd) == 0); \
        if (size > model_size) memset(model + model_size, 0, size - model_size); \
        model_size = size; same(#name); } while (0)
    RESIZE(ftruncate, 9000, F(ftruncate)(fd, 9000) == 0);
    RESIZE(ftruncate64, 30000, F(ftruncate64)(fd, 30000) == 0);
    RESIZE(truncate, 9000, F(truncate)(in_pool, 9000) == 0);
    RESIZE(truncate64, 30000, F(truncate64)(in_pool, 30000) == 0);
    RESIZE(posix_fallocate, 30000, F(posix_fallocate)(fd, 0, 30000) == 0);
    RESIZE(posix_fallocate64, 30000, F(posix_fallocate64)(fd, 0, 30000) == 0);
    RESIZE(fallocate, 30000, F(fallocate)(fd, 0, 0, 30000) == 0);
    RESIZE(fallocate64, 30000, F(fallocate64)(fd, 0, 0, 30000) == 0);
    FD(flock, F(flock)(fd, LOCK_EX) == 0 && F(flock)(fd, LOCK_UN) == 0);
    FD(lockf, F(lockf)(fd, F_LOCK, 100) == 0 && F(lockf)(fd, F_ULOCK, 100) == 0);
    FD(lockf64, F(lockf64)(fd, F_LOCK, 100) == 0 && F(lockf64)(fd, F_ULOCK, 100) == 0);
    FD(ioctl, F(ioctl)(fd, FIONREAD, &number) == 0 && number == SIZE);
    FD(isatty, !F(isatty)(fd));
    FD(isfdtype, F(isfdtype)(fd, S_IFREG) == 1);
    FD(fgetxattr, F(fgetxattr)(fd, "user.none", seen, 10) == -1);
    FD(fsetxattr, F(fsetxattr)(fd, "user.mark", "m", 1, 0) == 0 && F(fgetxattr)(fd, "user.mark", seen, 10) == 1 && seen[0] == 'm');
    FD(flistxattr, F(flistxattr)(fd, seen, 1000) >= 0 && memmem(seen, 1000, "user.mark", 9));
    FD(fremovexattr, F(fremovexattr)(fd, "user.mark") == 0 && fgetxattr(fd, "user.mark", seen, 10) == -1);
    struct pollfd polled;
    struct timespec now = {0, 0};
#define POLLED (polled = (struct pollfd){fd, POLLIN | POLLOUT, 0}, 1)
    FD(poll, POLLED && F(poll)(&polled, 1, 0) == 1);
    FD(__poll, POLLED && G(__poll, int, void *, long, int)(&polled, 1, 0) == 1);
    FD(__poll_chk, POLLED && G(__poll_chk, int, void *, long, int, size_t)(&polled, 1, 0, sizeof polled) == 1);
    FD(ppoll, POLLED && F(ppoll)(&polled, 1, &now, NULL) == 1);
    FD(__ppoll_chk, POLLED && G(__ppoll_chk, int, void *, long, void *, void *, size_t)(&polled, 1, &now, NULL, sizeof polled) == 1);
    fd_set set;
    struct timeval tv = {0, 0};
#define SET ({ FD_ZERO(&set); FD_SET(fd, &set); 1; })
    FD(select, SET && F(select)(fd + 1, &set, NULL, NULL, &tv) == 1 && FD_ISSET(fd, &set));
    FD(__select, SET && G(__select, int, int, void *, void *, void *, void *)(fd + 1, &set, NULL, NULL, &tv) == 1);
    FD(pselect, SET && F(pselect)(fd + 1, &set, NULL, NULL, &now, NULL) == 1);
    FILE *s;
    FD(fdopen, (s = F(fdopen)(dup(fd), "r")) && fread(seen, 1, 9000, s) == 9000 && memcmp(seen, model, 9000) == 0 && fclose(s) == 0);
    FD(_IO_fdopen, (s = G(_IO_fdopen, FILE *, int, const char *)(dup(fd), "r")) && fread(seen, 1, 9000, s) == 9000 && memcmp(seen, model, 9000) == 0 && fclose(s) == 0);
    int plain = open(outside, O_CREAT | O_TRUNC | O_RDWR, 0600);
#define SENT (pread(plain, seen, 9000, 0) == 9000 && memcmp(seen, model, 9000) == 0 && ftruncate(plain, 0) == 0 && lseek(plain, 0, SEEK_SET) == 0)
    FD(sendfile, F(sendfile)(plain, fd, NULL, 9000) == 9000 && SENT);
    FD(sendfile64, F(sendfile64)(plain, fd, NULL, 9000) == 9000 && SENT);
    int ends[2];
    CHECK("pipe", pipe(ends) == 0);
    loff_t place = 3;
    FD(splice, F(splice)(fd, &place, ends[1], NULL, 4000, 0) == 4000 && read(ends[0], seen, 4000) == 4000 && memcmp(seen, model + 3, 4000) == 0);
    struct iovec piece = {"spliced", 7};
    CHECK("vmsplice", F(vmsplice)(ends[1], &piece, 1, 0) == 7);
    int fd = opened(O_RDWR);
    place = 0;
    CHECK("vmsplice", splice(ends[0], NULL, fd, &place, 7, 0) == 7 && close(fd) == 0);
    model_write("spliced", 7, 0);
    same("vmsplice");
    close(plain); close(ends[0]); close(ends[1]);
    plain = open(outside, O_CREAT | O_TRUNC | O_RDWR, 0600);
    loff_t from = 0, to = 0;
    FD(copy_file_range, F(copy_file_range)(fd, &from, plain, &to, 9000, 0) == 9000 ? SENT : errno == EXDEV);
    close(plain);
    /* Asynchronous ones, and lists of them. */
    struct aiocb job, *jobs[] = {&job};
#define JOB(buffer, len, at, code) (memset(&job, 0, sizeof job), job.aio_fildes = fd, job.aio_buf = buffer, job.aio_nbytes = len, job.aio_offset = at, job.aio_lio_opcode = code, 1)
#define DONE(error, suspend, result) ({ while (F(error)((void *)&job) == EINPROGRESS) F(suspend)((void *)jobs, 1, NULL); F(result)((void *)&job); })
    FD(aio_read, JOB(seen, 9000, 100, 0) && F(aio_read)(&job) == 0 && DONE(aio_error, aio_suspend, aio_return) == 9000 && memcmp(seen, model + 100, 9000) == 0);
    ok("aio_error"); ok("aio_suspend"); ok("aio_return");
    FD(aio_read64, JOB(seen, 9000, 100, 0) && F(aio_read64)((void *)&job) == 0 && DONE(aio_error64, aio_suspend64, aio_return64) == 9000 && memcmp(seen, model + 100, 9000) == 0);
    ok("aio_error64"); ok("aio_suspend64"); ok("aio_return64");
    FD(lio_listio, JOB(seen, 9000, 100, LIO_READ) && F(lio_listio)(LIO_WAIT, jobs, 1, NULL) == 0 && aio_return(&job) == 9000 && memcmp(seen, model + 100, 9000) == 0);
    FD(lio_listio64, JOB(seen, 9000, 100, LIO_READ) && F(lio_listio64)(LIO_WAIT, (void *)jobs, 1, NULL) == 0 && aio_return(&job) == 9000 && memcmp(seen, model + 100, 9000) == 0);
    FD(aio_fsync, JOB(NULL, 0, 0, 0) && F(aio_fsync)(O_SYNC, &job) == 0 && DONE(aio_error, aio_suspend, aio_return) == 0);
    FD(aio_fsync64, JOB(NULL, 0, 0, 0) && F(aio_fsync64)(O_SYNC, (void *)&job) == 0 && DONE(aio_error, aio_suspend, aio_return) == 0);
    FD(aio_cancel, F(aio_cancel)(fd, NULL) == AIO_ALLDONE);
    FD(aio_cancel64, F(aio_cancel64)(fd, NULL) == AIO_ALLDONE);
#define AIO_OUT(name, call) do { \
        int fd = opened(O_RDWR); \
        CHECK(#name, JOB("asynchronous", 12, 4090, 0) && (call) == 0 && DONE(aio_error, aio_suspend, aio_return) == 12 && close(fd) == 0); \
        model_write("asynchronous", 12, 4090); same(#name); } while (0)
    AIO_OUT(aio_write, F(aio_write)(&job));
    AIO_OUT(aio_write64, F(aio_write64)((void *)&job));
}

static int walked, is_there;
static int walk(const char *path, const struct stat *st, int flag) {
    (void)flag;
    walked += strcmp(path, in_pool) == 0 && st->st_size == SIZE;
    return 0;
}
static int walk_n(const char *path, const struct stat *st, int flag, struct FTW *ftw) { (void)ftw; return walk(path, st, flag); }
static int chosen(const struct dirent *entry) { return strcmp(entry->d_name, "every_other") == 0; }
static int ran(pid_t child) { int status; return child > 0 && waitpid(child, &status, 0) == child && status == 0; }

static int closing(void *fd) { return close(*(int *)fd); }

static void paths(void) {
    struct stat st;
    struct stat64 st64;
    struct statfs fs;
    struct statfs64 fs64;
    struct statvfs vfs;
    struct statvfs64 vfs64;
    PATH(stat, F(stat)(in_pool, &st) == 0 && SIZED);
    PATH(stat64, F(stat64)(in_pool, &st64) == 0 && st64.st_size == SIZE);
    PATH(lstat, F(lstat)(in_pool, &st) == 0 && SIZED);
    PATH(lstat64, F(lstat64)(in_pool, &st64) == 0 && st64.st_size == SIZE);
    PATH(__xstat, G(__xstat, int, int, const char *, void *)(1, in_pool, &st) == 0 && SIZED);
    PATH(__xstat64, G(__xstat64, int, int, const char *, void *)(1, in_pool, &st) == 0 && SIZED);
    PATH(__lxstat, G(__lxstat, int, int, const char *, void *)(1, in_pool, &st) == 0 && SIZED);
    PATH(__lxstat64, G(__lxstat64, int, int, const char *, void *)(1, in_pool, &st) == 0 && SIZED);
    PATH(statfs, F(statfs)(in_pool, &fs) == 0 && fs.f_blocks > 0);
    PATH(__statfs, G(__statfs, int, const char *, void *)(in_pool, &fs) == 0 && fs.f_blocks > 0);
    PATH(statfs64, F(statfs64)(in_pool, &fs64) == 0 && fs64.f_blocks > 0);
    PATH(statvfs, F(statvfs)(in_pool, &vfs) == 0 && vfs.f_blocks > 0);
    PATH(statvfs64, F(statvfs64)(in_pool, &vfs64) == 0 && vfs64.f_blocks > 0);
    PATH(pathconf, F(pathconf)(in_pool, _PC_NAME_MAX) > 100);
    PATH(access, F(access)(in_pool, R_OK) == 0 && F(access)(other, F_OK) == -1);
    PATH(eaccess, F(eaccess)(in_pool, R_OK) == 0 && F(eaccess)(other, F_OK) == -1);
    PATH(euidaccess, F(euidaccess)(in_pool, R_OK) == 0 && F(euidaccess)(other, F_OK) == -1);
    PATH(faccessat, F(faccessat)(AT_FDCWD, in_pool, R_OK, 0) == 0 && F(faccessat)(AT_FDCWD, other, F_OK, 0) == -1);
#define MODE(mode) (stat(in_pool, &st) == 0 && (st.st_mode & 0777) == mode)
    PATH(chmod, F(chmod)(in_pool, 0640) == 0 && MODE(0640));
    PATH(fchmodat, F(fchmodat)(AT_FDCWD, in_pool, 0604, 0) == 0 && MODE(0604));
    PATH(lchmod, F(lchmod)(in_pool, 0600) == 0 ? MODE(0600) : errno == EOPNOTSUPP);
#define OWNED (stat(in_pool, &st) == 0 && st.st_uid == geteuid() && st.st_gid == getegid())
    PATH(chown, F(chown)(in_pool, geteuid(), getegid()) == 0 && OWNED);
    PATH(lchown, F(lchown)(in_pool, geteuid(), getegid()) == 0 && OWNED);
    PATH(fchownat, F(fchownat)(AT_FDCWD, in_pool, geteuid(), getegid(), 0) == 0 && OWNED);
#define MOVED (stat(other, &st) == 0 && SIZED && stat(in_pool, &st) == -1 && rename(other, in_pool) == 0)
    PATH(rename, F(rename)(in_pool, other) == 0 && MOVED);
    PATH(renameat, F(renameat)(AT_FDCWD, in_pool, AT_FDCWD, other) == 0 && MOVED);
    PATH(renameat2, F(renameat2)(AT_FDCWD, in_pool, AT_FDCWD, other, 0) == 0 && MOVED);
#define LINKED (stat(other, &st) == 0 && SIZED && st.st_nlink == 2 && rename(other, in_pool) == 0 && unlink(other) == 0)
    PATH(link, F(link)(in_pool, other) == 0 && LINKED);
    PATH(linkat, F(linkat)(AT_FDCWD, in_pool, AT_FDCWD, other, 0) == 0 && LINKED);
    PATH(symlink, F(symlink)(in_pool, other) == 0 && stat(other, &st) == 0 && SIZED);
    PATH(symlinkat, F(symlinkat)(in_pool, AT_FDCWD, other) == 0 && stat(other, &st) == 0 && SIZED);
#define LINK (symlink("every_other", other) == 0)
#define TARGET(length) ((length) == 11 && memcmp(seen, "every_other", 11) == 0)
    PATH(readlink, LINK && TARGET(F(readlink)(other, seen, 100)));
    PATH(__readlink_chk, LINK && TARGET(G(__readlink_chk, ssize_t, const char *, char *, size_t, size_t)(other, seen, 100, 100)));
    PATH(readlinkat, LINK && TARGET(F(readlinkat)(AT_FDCWD, other, seen, 100)));
    PATH(__readlinkat_chk, LINK && TARGET(G(__readlinkat_chk, ssize_t, int, const char *, char *, size_t, size_t)(AT_FDCWD, other, seen, 100, 100)));
#define REAL(path) ((path) != NULL && strcmp(seen, in_pool) == 0)
    PATH(realpath, LINK && REAL(F(realpath)(other, seen)));
    PATH(__realpath_chk, LINK && REAL(G(__realpath_chk, char *, const char *, char *, size_t)(other, seen, 4096)));
    PATH(canonicalize_file_name, LINK && REAL(strcpy(seen, F(canonicalize_file_name)(other))));
#define GONE(call) (link(in_pool, other) == 0 && (call) == 0 && stat(other, &st) == -1 && errno == ENOENT)
    PATH(unlink, GONE(F(unlink)(other)));
    PATH(unlinkat, GONE(F(unlinkat)(AT_FDCWD, other, 0)));
    PATH(remove, GONE(F(remove)(other)));
    PATH(mkdir, F(mkdir)(other, 0700) == 0 && rmdir(other) == 0);
    PATH(mkdirat, F(mkdirat)(AT_FDCWD, other, 0700) == 0 && rmdir(other) == 0);
    PATH(rmdir, mkdir(other, 0700) == 0 && F(rmdir)(other) == 0 && F(rmdir)(in_pool) == -1);
    char made[4100];
#define TEMPLATE (snprintf(made, sizeof made, "%s.XXXXXX", in_pool))
    PATH(mkdtemp, TEMPLATE && F(mkdtemp)(made) == made && rmdir(made) == 0);
    PATH(mktemp, TEMPLATE && F(mktemp)(made) == made && stat(made, &st) == -1);
#define MADE(kind) (stat(other, &st) == 0 && S_IS##kind(st.st_mode) && unlink(other) == 0)
    PATH(mkfifo, F(mkfifo)(other, 0600) == 0 && MADE(FIFO));
    PATH(mkfifoat, F(mkfifoat)(AT_FDCWD, other, 0600) == 0 && MADE(FIFO));
    PATH(mknod, F(mknod)(other, S_IFREG | 0600, 0) == 0 && MADE(REG));
    PATH(mknodat, F(mknodat)(AT_FDCWD, other, S_IFREG | 0600, 0) == 0 && MADE(REG));
    dev_t device = 0;
    PATH(__xmknod, G(__xmknod, int, int, const char *, mode_t, dev_t *)(0, other, S_IFREG | 0600, &device) == 0 && MADE(REG));
    PATH(__xmknodat, G(__xmknodat, int, int, int, const char *, mode_t, dev_t *)(0, AT_FDCWD, other, S_IFREG | 0600, &device) == 0 && MADE(REG));
#define MARKED(get, name) (get(in_pool, name, seen, 10) == 1 && seen[0] == 'm')
    PATH(setxattr, F(setxattr)(in_pool, "user.mark", "m", 1, 0) == 0 && MARKED(getxattr, "user.mark"));
    PATH(lsetxattr, F(lsetxattr)(in_pool, "user.more", "m", 1, 0) == 0 && MARKED(getxattr, "user.more"));
    PATH(getxattr, MARKED(F(getxattr), "user.mark"));
    PATH(lgetxattr, MARKED(F(lgetxattr), "user.mark"));
    PATH(listxattr, F(listxattr)(in_pool, seen, 1000) > 0 && memmem(seen, 1000, "user.mark", 9));
    PATH(llistxattr, F(llistxattr)(in_pool, seen, 1000) > 0 && memmem(seen, 1000, "user.mark", 9));
    PATH(removexattr, F(removexattr)(in_pool, "user.mark") == 0 && getxattr(in_pool, "user.mark", seen, 10) == -1);
    PATH(lremovexattr, F(lremovexattr)(in_pool, "user.more") == 0 && getxattr(in_pool, "user.more", seen, 10) == -1);
    PATH(ftok, F(ftok)(in_pool, 1) != -1 && F(ftok)(other, 1) == -1);
    /* Directories. */
    walked = 0;
    PATH(ftw, F(ftw)(directory, walk, 5) == 0 && walked == 1);
    PATH(ftw64, F(ftw64)(directory, (void *)walk, 5) == 0 && walked == 2);
    PATH(nftw, F(nftw)(directory, walk_n, 5, 0) == 0 && walked == 3);
    PATH(nftw64, F(nftw64)(directory, (void *)walk_n, 5, 0) == 0 && walked == 4);
    struct dirent **list;
    struct dirent64 **list64;
    PATH(scandir, F(scandir)(directory, &list, chosen, NULL) == 1);
    PATH(scandir64, F(scandir64)(directory, &list64, (void *)chosen, NULL) == 1);
    PATH(scandirat, F(scandirat)(AT_FDCWD, directory, &list, chosen, NULL) == 1);
    PATH(scandirat64, F(scandirat64)(AT_FDCWD, directory, &list64, (void *)chosen, NULL) == 1);
    glob_t matches;
    glob64_t matches64;
    wordexp_t words;
    snprintf(made, sizeof made, "%s/every_o*r", directory);
    PATH(glob, F(glob)(made, 0, NULL, &matches) == 0 && matches.gl_pathc == 1 && strcmp(matches.gl_pathv[0], in_pool) == 0);
    PATH(glob64, F(glob64)(made, 0, NULL, &matches64) == 0 && matches64.gl_pathc == 1);
    PATH(wordexp, F(wordexp)(made, &words, 0) == 0 && words.we_wordc == 1 && strcmp(words.we_wordv[0], in_pool) == 0);
    DIR *dir;
    struct dirent *entry, room;
    struct dirent64 *entry64, room64;
#define LISTED(name, call) PATH(name, ({ is_there = 0; dir = opendir(directory); while (call) is_there += chosen((void *)(strstr(#name, "64") ? (void *)entry64 : (void *)entry)); closedir(dir); is_there == 1; }))
    LISTED(readdir, (entry = F(readdir)(dir)));
    LISTED(readdir64, (entry64 = F(readdir64)(dir)));
    LISTED(readdir_r, F(readdir_r)(dir, &room, &entry) == 0 && entry);
    LISTED(readdir64_r, F(readdir64_r)(dir, &room64, &entry64) == 0 && entry64);
    PATH(opendir, (dir = F(opendir)(directory)) && readdir(dir) && closedir(dir) == 0);
    PATH(closedir, (dir = opendir(directory)) && F(closedir)(dir) == 0);
    PATH(fdopendir, (dir = F(fdopendir)(open(directory, O_RDONLY))) && readdir(dir) && closedir(dir) == 0);
    PATH(dirfd, (dir = opendir(directory)) && fstatat(F(dirfd)(dir), "every_other", &st, 0) == 0 && SIZED && closedir(dir) == 0);
    long here;
    PATH(telldir, (dir = opendir(directory)) && (here = F(telldir)(dir), readdir(dir)) && closedir(dir) == 0);
    PATH(seekdir, (dir = opendir(directory)) && (here = telldir(dir), entry = readdir(dir)) && (strcpy(made, entry->d_name), seekdir(dir, here), entry = readdir(dir)) && strcmp(made, entry->d_name) == 0 && closedir(dir) == 0);
    PATH(rewinddir, (dir = opendir(directory)) && (entry = readdir(dir)) && (strcpy(made, entry->d_name), F(rewinddir)(dir), entry = readdir(dir)) && strcmp(made, entry->d_name) == 0 && closedir(dir) == 0);
    off_t start;
#define DENTS(name, call) PATH(name, ({ int fd = open(directory, O_RDONLY); start = 0; long n = (call); close(fd); n > 0 && memmem(seen, n, "every_other", 12) != NULL; }))
    DENTS(getdents64, F(getdents64)(fd, seen, sizeof seen));
    DENTS(getdirentries, F(getdirentries)(fd, seen, sizeof seen, &start));
    DENTS(getdirentries64, F(getdirentries64)(fd, seen, sizeof seen, (void *)&start));
    char *roots[] = {in_pool, NULL};
    FTS *tree;
    FTSENT *node;
    PATH(fts_open, (tree = F(fts_open)(roots, FTS_PHYSICAL, NULL)) && (node = F(fts_read)(tree)) && node->fts_statp->st_size == SIZE && F(fts_set)(tree, node, FTS_SKIP) == 0 && F(fts_close)(tree) == 0);
    ok("fts_read"); ok("fts_set"); ok("fts_close");
    PATH(fts_children, (tree = fts_open(roots, FTS_PHYSICAL, NULL)) && (node = F(fts_children)(tree, 0)) && node->fts_statp->st_size == SIZE && fts_close(tree) == 0);
    FTS64 *tree64;
    FTSENT64 *node64;
    PATH(fts64_open, (tree64 = F(fts64_open)(roots, FTS_PHYSICAL, NULL)) && (node64 = F(fts64_read)(tree64)) && node64->fts_statp->st_size == SIZE && F(fts64_set)(tree64, node64, FTS_SKIP) == 0 && F(fts64_close)(tree64) == 0);
    ok("fts64_read"); ok("fts64_set"); ok("fts64_close");
    PATH(fts64_children, (tree64 = fts64_open(roots, FTS_PHYSICAL, NULL)) && (node64 = F(fts64_children)(tree64, 0)) && node64->fts_statp->st_size == SIZE && fts64_close(tree64) == 0);
    char before[4096];
    int back;
    CHECK("getcwd", getcwd(before, sizeof before) && (back = open(".", O_RDONLY)) >= 0);
#define INSIDE (stat("every_other", &st) == 0 && SIZED)
#define HERE(path) ((path) && strcmp(seen, directory) == 0)
    PATH(chdir, F(chdir)(directory) == 0 && INSIDE);
    PATH(getcwd, HERE(F(getcwd)(seen, 4096)));
    PATH(getwd, HERE(F(getwd)(seen)));
    PATH(__getcwd_chk, HERE(G(__getcwd_chk, char *, char *, size_t, size_t)(seen, 4096, 4096)));
    PATH(__getwd_chk, HERE(G(__getwd_chk, char *, char *, size_t)(seen, 4096)));
    unsetenv("PWD");
    PATH(get_current_dir_name, HERE(strcpy(seen, F(get_current_dir_name)())));
    PATH(fchdir, F(fchdir)(back) == 0 && ({ int in = open(directory, O_RDONLY); F(fchdir)(in) == 0 && close(in) == 0; }) && INSIDE && F(fchdir)(back) == 0);
    close(back);
    /* Streams by name. */
    FILE *s;
#define NAMED(name, open) PATH(name, (s = open) && fread(seen, 1, 9000, s) == 9000 && memcmp(seen, model, 9000) == 0 && fclose(s) == 0)
    NAMED(fopen, F(fopen)(in_pool, "r"));
    NAMED(fopen64, F(fopen64)(in_pool, "r"));
    NAMED(_IO_fopen, G(_IO_fopen, FILE *, const char *, const char *)(in_pool, "r"));
#define AGAIN (s = fopen(outside, "w+"), G(_IO_file_close_it, int, FILE *)(s) == 0)
    NAMED(_IO_file_fopen, AGAIN ? G(_IO_file_fopen, FILE *, FILE *, const char *, const char *, int)(s, in_pool, "r", 0) : NULL);
    ok("_IO_file_close_it");
    NAMED(_IO_file_open, AGAIN ? G(_IO_file_open, FILE *, FILE *, const char *, int, int, int, int)(s, in_pool, O_RDONLY, 0, 8, 0) : NULL);
    NAMED(_IO_file_attach, AGAIN ? G(_IO_file_attach, FILE *, FILE *, int)(s, open(in_pool, O_RDWR)) : NULL);
    /* Programs whose file, input or output is the placed one. */
    char script[4200];
#define EXEC(name, call) do { \
        snprintf(script, sizeof script, "#!/bin/sh\n# placed\ntest \"$1\" = argument\n"); \
        content(script, 0); CHECK(#name, chmod(in_pool, 0700) == 0); \
        pid_t child = fork(); \
        if (child == 0) { call; _exit(98); } \
        CHECK(#name, ran(child)); same(#name); CHECK(#name, chmod(in_pool, 0600) == 0); } while (0)
    char *args[] = {in_pool, "argument", NULL};
    EXEC(execl, F(execl)(in_pool, in_pool, "argument", NULL));
    EXEC(execle, F(execle)(in_pool, in_pool, "argument", NULL, environ));
    EXEC(execlp, F(execlp)(in_pool, in_pool, "argument", NULL));
    EXEC(execv, F(execv)(in_pool, args));
    EXEC(execve, F(execve)(in_pool, args, environ));
    EXEC(execvp, F(execvp)(in_pool, args));
    EXEC(execvpe, F(execvpe)(in_pool, args, environ));
    EXEC(execveat, F(execveat)(AT_FDCWD, in_pool, args, environ, 0));
    EXEC(fexecve, F(fexecve)(open(in_pool, O_RDONLY), args, environ));
    pid_t child;
    EXEC(posix_spawn, _exit(!(F(posix_spawn)(&child, in_pool, NULL, NULL, args, environ) == 0 && ran(child))));
    EXEC(posix_spawnp, _exit(!(F(posix_spawnp)(&child, in_pool, NULL, NULL, args, environ) == 0 && ran(child))));
    EXEC(system, (snprintf(made, sizeof made, "'%s' argument", in_pool), _exit(F(system)(made) != 0)));
    EXEC(popen, (snprintf(made, sizeof made, "cmp - '%s'", in_pool), s = F(popen)(made, "w"), fputs(script, s), _exit(pclose(s) != 0)));
    EXEC(_IO_popen, (snprintf(made, sizeof made, "cmp - '%s'", in_pool), s = G(_IO_popen, FILE *, const char *, const char *)(made, "w"), fputs(script, s), _exit(pclose(s) != 0)));
    posix_spawn_file_actions_t actions;
    char *echo[] = {"sh", "-c", "test -f every_other && printf echoed", NULL};
#define SPAWN(name, add) do { \
        content(TEXT, SIZE - sizeof TEXT + 1); \
        int fd = open(in_pool, O_RDWR), in = open(directory, O_RDONLY); (void)fd; (void)in; \
        CHECK(#name, posix_spawn_file_actions_init(&actions) == 0 && (add)); \
        CHECK(#name, posix_spawn(&child, "/bin/sh", &actions, NULL, echo, environ) == 0 && ran(child)); \
        close(fd); close(in); posix_spawn_file_actions_destroy(&actions); \
        model_write("echoed", 6, 0); same(#name); } while (0)
#define TO_DIRECTORY (F(posix_spawn_file_actions_addchdir_np)(&actions, directory) == 0)
    SPAWN(posix_spawn_file_actions_addopen, TO_DIRECTORY && F(posix_spawn_file_actions_addopen)(&actions, 1, in_pool, O_RDWR, 0) == 0);
    ok("posix_spawn_file_actions_addchdir_np");
    SPAWN(posix_spawn_file_actions_adddup2, TO_DIRECTORY && F(posix_spawn_file_actions_adddup2)(&actions, fd, 1) == 0);
    SPAWN(posix_spawn_file_actions_addfchdir_np, F(posix_spawn_file_actions_addfchdir_np)(&actions, in) == 0 && posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
    SPAWN(posix_spawn_file_actions_addclose, TO_DIRECTORY && posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0 && F(posix_spawn_file_actions_addclose)(&actions, fd) == 0);
    SPAWN(posix_spawn_file_actions_addclosefrom_np, TO_DIRECTORY && posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0 && F(posix_spawn_file_actions_addclosefrom_np)(&actions, 3) == 0);
    /* A library on the pool: the loader's own calls, which no library sees. */
    struct link_map *map;
    void *math = dlopen("libm.so.6", RTLD_NOW);
    CHECK("dlopen", math && dlinfo(math, RTLD_DI_LINKMAP, &map) == 0);
    snprintf(made, sizeof made, "cp '%s' '%s'", map->l_name, in_pool);
    CHECK("dlopen", system(made) == 0);
    void *loaded = F(dlopen)(in_pool, RTLD_NOW);
    CHECK("dlopen", loaded && dlsym(loaded, "cos") && dlsym(loaded, "cos") != dlsym(math, "cos") && dlclose(loaded) == 0);
    ok("dlopen");
    loaded = F(dlmopen)(LM_ID_NEWLM, in_pool, RTLD_NOW);
    CHECK("dlmopen", loaded && dlsym(loaded, "cos") && dlsym(loaded, "cos") != dlsym(math, "cos") && dlclose(loaded) == 0);
    ok("dlmopen");
    /* What a container may forbid. */
#define FORBIDDEN (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP)
    int process = pidfd_open(getpid(), 0), copy;
    FD(pidfd_getfd, (copy = G(pidfd_getfd, int, int, int, unsigned)(process, fd, 0)) >= 0 ? pread(copy, seen, 9000, 0) == 9000 && memcmp(seen, model, 9000) == 0 && close(copy) == 0 : FORBIDDEN);
    close(process);
    PATH(open_tree, (copy = G(open_tree, int, int, const char *, unsigned)(AT_FDCWD, in_pool, 0)) >= 0 ? fstat(copy, &st) == 0 && SIZED && close(copy) == 0 : FORBIDDEN);
    union { struct file_handle header; char room[sizeof(struct file_handle) + MAX_HANDLE_SZ]; } handle = {{MAX_HANDLE_SZ}};
    PATH(name_to_handle_at, F(name_to_handle_at)(AT_FDCWD, in_pool, &handle.header, &number, 0) == 0 || FORBIDDEN);
    char *pages;
    FD(remap_file_pages, (pages = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0)) != MAP_FAILED && F(remap_file_pages)(pages, 4096, 0, 1, 0) == 0 && memcmp(pages, model + 4096, 4096) == 0 && munmap(pages, 8192) == 0);
    struct tm *date;
    setenv("DATEMSK", in_pool, 1);
    content("%Y-%m-%d\n", 0);
    CHECK("getdate", (date = F(getdate)("2001-02-03")) && date->tm_year == 101 && date->tm_mday == 3);
    ok("getdate");
    /* Records of logins, in a file that the program names. */
    struct utmpx login = {.ut_type = USER_PROCESS, .ut_user = "user", .ut_id = "id", .ut_line = "line"};
#define LOGIN(name, condition) do { \
        content("", 0); CHECK(#name, condition); \
        int fd = open(in_pool, O_RDONLY); \
        CHECK(#name, read(fd, seen, sizeof seen) == sizeof login && memcmp(seen, &login, sizeof login) == 0); \
        CHECK(#name, close(fd) == 0); ok(#name); } while (0)
    LOGIN(updwtmp, (F(updwtmp)(in_pool, (void *)&login), 1));
    LOGIN(updwtmpx, (F(updwtmpx)(in_pool, &login), 1));
    LOGIN(utmpname, F(utmpname)(in_pool) == 0 && (setutxent(), pututxline(&login)) && (endutxent(), 1));
    LOGIN(utmpxname, F(utmpxname)(in_pool) == 0 && (setutxent(), pututxline(&login)) && (endutxent(), 1));
    PATH(tempnam, strncmp(F(tempnam)(directory, "tmp"), directory, strlen(directory)) == 0);
    int notify = inotify_init(), watch;
    PATH(inotify_add_watch, (watch = F(inotify_add_watch)(notify, in_pool, IN_ATTRIB)) >= 0 && chmod(in_pool, 0600) == 0 && read(notify, seen, sizeof seen) >= (ssize_t)sizeof(struct inotify_event));
    PATH(inotify_rm_watch, F(inotify_rm_watch)(notify, watch) == 0 && close(notify) == 0);
    /* A descriptor that comes in a message is the same open file. */
    int pair[2], sent = opened(O_RDWR);
    CHECK("recvmsg", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int many = 0; many < 2; many++) {
        union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {{CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        struct iovec byte = {seen, 1};
        struct mmsghdr message = {{NULL, 0, &byte, 1, &control, sizeof control, 0}, 0};
        *(int *)CMSG_DATA(&control.header) = sent;
        CHECK("sendmsg", many ? F(sendmmsg)(pair[0], &message, 1, 0) == 1 : F(sendmsg)(pair[0], &message.msg_hdr, 0) == 1);
        memset(CMSG_DATA(&control.header), 0, sizeof(int));
        CHECK("recvmsg", many ? F(recvmmsg)(pair[1], &message, 1, 0, NULL) == 1 : F(recvmsg)(pair[1], &message.msg_hdr, 0) == 1);
        int received = *(int *)CMSG_DATA(&control.header);
        CHECK("recvmsg", received > 0 && write(sent, "first", 5) == 5 && write(received, "second", 6) == 6 && close(received) == 0);
        model_write("firstsecond", 11, 11 * many);
        same(many ? "recvmmsg" : "recvmsg");
        ok(many ? "sendmmsg" : "sendmsg");
    }
    close(pair[0]); close(pair[1]); close(sent);
    s = stream("r+");
    int kept = fileno(s);
    G(_IO_default_finish, void, FILE *, int)(s, 0);
    CHECK("_IO_default_finish", pread(kept, seen, 9000, 0) == 9000 && memcmp(seen, model, 9000) == 0 && close(kept) == 0);
    ok("_IO_default_finish");
    /* Descriptors that are no longer shared, in a child: this process would go past the mount no more. */
    static char stack[1 << 16];
#define SHARING(name, call) do { \
        int fd = opened(O_RDWR), status; \
        pid_t child = fork(); \
        if (child == 0) _exit(!(pwrite(fd, "before", 6, 0) == 6 && (call) && pwrite(fd, "after", 5, 6) == 5)); \
        CHECK(#name, waitpid(child, &status, 0) == child && status == 0 && close(fd) == 0); \
        model_write("beforeafter", 11, 0); same(#name); } while (0)
    SHARING(unshare, F(unshare)(CLONE_FILES) == 0);
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    SHARING(prctl, F(prctl)(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && F(prctl)(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    SHARING(clone, ran(F(clone)(closing, stack + sizeof stack, CLONE_VM | SIGCHLD, &fd)));
    SHARING(__clone, ran(G(__clone, int, void *, void *, int, void *)(closing, stack + sizeof stack, CLONE_VM | SIGCHLD, &fd)));
    /* All streams at once, in a child that has nothing else to say. */
    int status, fd = opened(O_RDWR);
    child = fork();
    if (child == 0) {
        s = fdopen(fd, "r+");
        int good = pwrite(fd, "before", 6, 0) == 6 && fseek(s, 6, SEEK_SET) == 0 && fputs("after", s) >= 0;
        F(fcloseall)();
        int plain = raw(SYS_openat, AT_FDCWD, (long)outside, O_CREAT | O_TRUNC | O_RDWR, 0600);
        if (plain != fd) raw(SYS_dup2, plain, fd, 0, 0);
        _exit(!(good && pwrite(fd, "elsewhere", 9, 0) == 9));
    }
    CHECK("fcloseall", waitpid(child, &status, 0) == child && status == 0 && close(fd) == 0);
    fd = open(outside, O_RDONLY);
    CHECK("fcloseall", read(fd, seen, 9) == 9 && memcmp(seen, "elsewhere", 9) == 0 && close(fd) == 0);
    model_write("beforeafter", 11, 0);
    same("fcloseall");
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    program_invocation_name = program_invocation_short_name = "prog";
    snprintf(directory, sizeof directory, "%s", argv[1]);
    snprintf(in_pool, sizeof in_pool, "%s/every_other", argv[1]);
    snprintf(other, sizeof other, "%s.other", in_pool);
    snprintf(outside, sizeof outside, "%s/plain", argv[2]);
    for (int i = 0; i < SIZE; i++) base[i] = 'a' + i % 23 + i / 4096 % 3;
    reading();
    writing();
    databases();
    descriptors();
    paths();
    return 0;
}
