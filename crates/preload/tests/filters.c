/* A program that lets the kernel filter its system calls, as sandboxes do. It makes few calls itself, and the filter ends
   it for any other: what a library adds is found out.

   filters WAY FILE: WAY is prctl, syscall, strict or exec. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(good) do { if (!(good)) { \
        char text[100]; int len = snprintf(text, sizeof text, "line %d: errno %d\n", __LINE__, errno); \
        if (write(2, text, len)) {} syscall(SYS_exit, 1); } } while (0)
#define COUNT(list) (sizeof list / sizeof *list)

/* What the program does from then on. */
static const int allowed[] = {SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_openat, SYS_close, SYS_mmap, SYS_munmap,
                              SYS_exit, SYS_exit_group};
/* What neither a program's start nor its own calls need. */
static const int denied[] = {SYS_statx, SYS_ioctl, SYS_lseek, SYS_readlinkat, SYS_getdents64, SYS_preadv, SYS_pwritev,
                             SYS_preadv2, SYS_pwritev2, SYS_madvise, SYS_fcntl, SYS_dup3, SYS_ftruncate};

static void filter(int by_number, const int *list, int count, unsigned listed, unsigned others) {
    struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int n = 1;
    for (int i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, list[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    struct sock_fprog program = {n, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* libseccomp asks so what the kernel can do. */
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT);
    if (by_number) CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Reads and writes in all ways that are allowed, then more of them where more is. */
static void use(int fd, const char *name, int strictly) {
    char seen[9000];
    CHECK(read(fd, seen, 9000) == 9000 && seen[0] == 'a' && seen[8999] == 'a');
    CHECK(write(fd, "written", 7) == 7);
    if (strictly) return;
    CHECK(pread(fd, seen, 9000, 1000) == 9000 && seen[8000] == 'w' && seen[0] == 'a');
    CHECK(pwrite(fd, "placed", 6, 20000) == 6);
    int other = open(name, O_RDWR);
    CHECK(other >= 0 && pread(other, seen, 6, 20000) == 6 && memcmp(seen, "placed", 6) == 0);
    char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, other, 0);
    CHECK(map != MAP_FAILED && map[0] == 'a' && munmap(map, 4096) == 0);
    CHECK(close(other) == 0 && close(fd) == 0);
    /* As programs do that close everything: a library might keep its own there. */
    for (int high = 500; high < 1024; high++) close(high);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *way = argv[1], *name = argv[2];
    if (strcmp(way, "started") == 0) {
        use(open(name, O_RDWR), name, 0);
        syscall(SYS_exit_group, 0);
    }
    int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    char bytes[30000];
    memset(bytes, 'a', sizeof bytes);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(pread(fd, bytes, 100, 5000) == 100);
    if (strcmp(way, "exec") == 0) {
        filter(0, denied, COUNT(denied), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
        CHECK(close(fd) == 0);
        char *again[] = {argv[0], "started", argv[2], NULL};
        execv(argv[0], again);
        CHECK(0);
    }
    if (strcmp(way, "strict") == 0) CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    else filter(strcmp(way, "syscall") == 0, allowed, COUNT(allowed), SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
    use(fd, name, strcmp(way, "strict") == 0);
    /* The other way out is not strict mode's. */
    syscall(SYS_exit, 0);
}
