/*
 * A preload shim that makes the N-th file operation fail.
 *
 * It wraps libc's file calls, with one counter for all processes of a run and one fault.
 * Elsewhere: the loop over N and the checks (crates/cli/tests/faults.rs).
 *
 * Only regular files and directories below MINKE_FAULT_ROOT count; standard input, output and error never do.
 * The counter is in a shared mapping of MINKE_FAULT_STATE, so a launcher and its pod form one sequence.
 * Only operations that can fail in the chosen way are counted, so every N is a point.
 *
 *   MINKE_FAULT        kill_before | kill_after | torn | short | enospc | full | eio | eintr | none
 *   MINKE_FAULT_AT     N, from 1; the fault happens once (`full`: from there on)
 *   MINKE_FAULT_ROOT   absolute path
 *   MINKE_FAULT_STATE  a file of at least sizeof(struct state) zero bytes, outside the root
 *   MINKE_FAULT_LOG    a file outside the root; one line for each process and each counted operation
 *
 *   MINKE_FAULT_SEEN   a directory outside the root for the data sent over each socket, in `PID.INODE`.
 *                      Written after the send, so a client may have seen the data.
 *
 * Build: cc -shared -fPIC -O2 -o faults.so faults.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct state {
    _Atomic uint64_t count;  /* applicable operations seen so far, in all processes */
    _Atomic uint64_t fired;  /* 1 when the fault has happened */
    _Atomic int64_t free;    /* `full`: bytes freed since */
};

enum kind { NONE, KILL_BEFORE, KILL_AFTER, TORN, SHORT, FAIL_ENOSPC, FULL, FAIL_EIO, FAIL_EINTR };
static const char *const kind_names[] = {
    "none", "kill_before", "kill_after", "torn", "short", "enospc", "full", "eio", "eintr",
};

/* The kinds of operations. */
enum op { OPEN, CREATE, MAKE, WRITE, TRUNCATE, ALLOCATE, SYNC, NAME, REMOVE, LOCK };

/* Returns whether an operation can have a fault. */
static int applies(enum kind kind, enum op op) {
    switch (kind) {
    case NONE: case KILL_BEFORE: case KILL_AFTER: case FAIL_EIO:
        return 1;
    case TORN: case SHORT:
        return op == WRITE;
    case FAIL_ENOSPC: /* a rename or a sync can need a block too */
        return op == CREATE || op == MAKE || op == WRITE || op == ALLOCATE || op == NAME || op == SYNC;
    case FULL:
        return op == WRITE || op == ALLOCATE;
    case FAIL_EINTR: /* creating, renaming and removing are not interrupted */
        return op == OPEN || op == CREATE || op == WRITE || op == TRUNCATE || op == SYNC || op == LOCK;
    }
    return 0;
}

static struct state *state;
static enum kind kind = NONE;
static uint64_t at;
static char root[PATH_MAX];
static size_t root_len;
static int log_fd = -1;
static const char *seen;

/* The raw call: our own `open` must not count itself. */
static int raw_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600); }

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("MINKE_FAULT"), *n = getenv("MINKE_FAULT_AT"), *where = getenv("MINKE_FAULT_ROOT");
    const char *shared = getenv("MINKE_FAULT_STATE"), *log = getenv("MINKE_FAULT_LOG");
    if (!name || !where || !shared) return;
    seen = getenv("MINKE_FAULT_SEEN");
    if (log) log_fd = raw_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC);
    int fd = raw_open(shared, O_RDWR | O_CLOEXEC);
    if (fd < 0 || strlen(where) >= sizeof root) _exit(99);
    void *map = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (map == MAP_FAILED) _exit(99);
    int known = 0;
    for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++)
        if (!strcmp(name, kind_names[i])) { kind = (enum kind)i; known = 1; }
    if (!known) _exit(99); /* a misspelt kind must not look like a run without a fault */
    at = n ? strtoull(n, NULL, 10) : 0;
    strcpy(root, where);
    root_len = strlen(root);
    state = map;
    if (log_fd >= 0) {
        char line[64];
        int len = snprintf(line, sizeof line, "start %d\n", (int)getpid());
        syscall(SYS_write, log_fd, line, (size_t)len);
    }
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Records data sent over a socket. Keeps the result of the send and errno. */
static ssize_t witness(int fd, const void *bytes, ssize_t sent) {
    struct stat st;
    int why = errno;
    if (seen && sent > 0 && !fstat(fd, &st) && S_ISSOCK(st.st_mode)) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%d.%llu", seen, (int)getpid(), (unsigned long long)st.st_ino);
        int out = raw_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC);
        if (out < 0 || syscall(SYS_write, out, bytes, (size_t)sent) != sent) _exit(99);
        syscall(SYS_close, out);
    }
    errno = why;
    return sent;
}

static int below_root(const char *path) {
    return !strncmp(path, root, root_len) && (path[root_len] == '/' || path[root_len] == 0);
}

/* Returns the path of a counted descriptor: a regular file or directory below the root. */
static int counts_fd(int fd, char path[PATH_MAX]) {
    if (!state || fd <= 2) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, PATH_MAX - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return below_root(path);
}

/* The same for a path relative to a directory. */
static int counts_path(int dir, const char *name, char path[PATH_MAX]) {
    if (!state || !name) return 0;
    if (name[0] == '/') {
        if (strlen(name) >= PATH_MAX) return 0;
        strcpy(path, name);
        return below_root(path);
    }
    char base[PATH_MAX], link[64];
    if (dir == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t len = readlink(link, base, sizeof base - 1);
    if (len <= 0) return 0;
    base[len] = 0;
    if ((size_t)len + strlen(name) + 2 > PATH_MAX) return 0;
    memcpy(path, base, (size_t)len);
    path[len] = '/';
    strcpy(path + len + 1, name);
    return below_root(path);
}

enum act { PASS, FAIL, DIE_FIRST, DIE_AFTER, HALF, HALF_AND_DIE, FROM_FREE };

static void note(uint64_t n, const char *what, const char *path, size_t bytes) {
    if (log_fd < 0) return;
    char line[PATH_MAX + 96];
    int len = snprintf(line, sizeof line, "%llu %d %s %zu %s\n", (unsigned long long)n, (int)getpid(), what, bytes,
                       path + root_len);
    syscall(SYS_write, log_fd, line, (size_t)len);
}

/* Counts an operation and returns its outcome; sets errno for FAIL. */
static enum act judge(enum op op, const char *what, const char *path, size_t bytes) {
    if (!applies(kind, op)) return PASS;
    if (kind == SHORT && bytes < 2) return PASS; /* a single byte cannot be half written */
    uint64_t n = atomic_fetch_add(&state->count, 1) + 1;
    note(n, what, path, bytes);
    if (kind == FULL && n >= at) {
        atomic_store(&state->fired, 1);
        return FROM_FREE;
    }
    if (n != at) return PASS;
    atomic_store(&state->fired, 1);
    switch (kind) {
    case KILL_BEFORE: return DIE_FIRST;
    case KILL_AFTER: return DIE_AFTER;
    case TORN: return HALF_AND_DIE;
    case SHORT: return HALF;
    case FAIL_ENOSPC: errno = ENOSPC; return FAIL;
    case FAIL_EIO: errno = EIO; return FAIL;
    case FAIL_EINTR: errno = EINTR; return FAIL;
    case NONE: case FULL: break;
    }
    return PASS;
}

/* Takes up to `want` freed bytes of a full disk. */
static size_t take_free(size_t want) {
    int64_t have = atomic_load(&state->free), take;
    do {
        take = have < (int64_t)want ? have : (int64_t)want;
        if (take <= 0) return 0;
    } while (!atomic_compare_exchange_weak(&state->free, &have, have - take));
    return (size_t)take;
}

static void give_free(int64_t bytes) {
    if (kind == FULL && atomic_load(&state->fired) && bytes > 0) atomic_fetch_add(&state->free, bytes);
}

/* Returns how many of `bytes` written at `offset` (-1: the current one) extend the file. */
static size_t growth(int fd, size_t bytes, off_t offset) {
    struct stat st;
    if (fstat(fd, &st)) return bytes;
    if (offset < 0) {
        int flags = fcntl(fd, F_GETFL);
        offset = (flags >= 0 && (flags & O_APPEND)) ? st.st_size : lseek(fd, 0, SEEK_CUR);
    }
    off_t end = offset + (off_t)bytes;
    if (end <= st.st_size) return 0;
    return offset >= st.st_size ? bytes : (size_t)(end - st.st_size);
}

/* An operation without partial results. */
#define WHOLE(op, path, bytes, call) \
    do { \
        enum act act = judge(op, __func__, path, bytes); \
        if (act == FAIL) return -1; \
        if (act == DIE_FIRST || act == HALF_AND_DIE) die(); \
        __typeof__(call) result = call; \
        if (act == DIE_AFTER) die(); \
        return result; \
    } while (0)

/* ---- writes ---- */

static ssize_t write_some(int fd, const void *bytes, size_t len, off_t offset) {
    return offset < 0 ? syscall(SYS_write, fd, bytes, len) : syscall(SYS_pwrite64, fd, bytes, len, offset);
}

static ssize_t faulty_write(const char *what, int fd, const void *bytes, size_t len, off_t offset) {
    char path[PATH_MAX];
    if (!counts_fd(fd, path)) return witness(fd, bytes, write_some(fd, bytes, len, offset));
    switch (judge(WRITE, what, path, len)) {
    case FAIL: return -1;
    case DIE_FIRST: die(); break;
    case DIE_AFTER: write_some(fd, bytes, len, offset); die(); break;
    case HALF: return write_some(fd, bytes, len / 2, offset);
    case HALF_AND_DIE:
        if (len > 1) write_some(fd, bytes, len / 2, offset);
        die();
        break;
    case FROM_FREE: {
        size_t grows = growth(fd, len, offset), got = take_free(grows);
        if (len && grows > got && len - grows + got == 0) { errno = ENOSPC; return -1; }
        return write_some(fd, bytes, len - grows + got, offset);
    }
    case PASS: break;
    }
    return write_some(fd, bytes, len, offset);
}

ssize_t write(int fd, const void *bytes, size_t len) { return faulty_write("write", fd, bytes, len, -1); }
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) {
    return faulty_write("pwrite", fd, bytes, len, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) {
    return faulty_write("pwrite", fd, bytes, len, offset);
}

/* A vector is joined first, so that half of it may end inside any of its parts. */
static ssize_t faulty_writev(const char *what, int fd, const struct iovec *parts, int count, off_t offset) {
    struct stat st;
    char path[PATH_MAX];
    int sends = seen && !fstat(fd, &st) && S_ISSOCK(st.st_mode);
    if (!sends && !counts_fd(fd, path))
        return offset < 0 ? syscall(SYS_writev, fd, parts, count)
                          : syscall(SYS_pwritev, fd, parts, count, (long)offset, 0L);
    size_t len = 0;
    for (int i = 0; i < count; i++) len += parts[i].iov_len;
    char *joined = malloc(len ? len : 1), *end = joined;
    if (!joined) { errno = ENOMEM; return -1; }
    for (int i = 0; i < count; i++) {
        memcpy(end, parts[i].iov_base, parts[i].iov_len);
        end += parts[i].iov_len;
    }
    ssize_t result = faulty_write(what, fd, joined, len, offset);
    int why = errno;
    free(joined);
    errno = why;
    return result;
}
ssize_t writev(int fd, const struct iovec *parts, int count) { return faulty_writev("writev", fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return faulty_writev("pwritev", fd, parts, count, offset);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return faulty_writev("pwritev", fd, parts, count, offset);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    return witness(fd, bytes, syscall(SYS_sendto, fd, bytes, len, flags, NULL, 0));
}

/* Copying inside the kernel would not be counted. Callers fall back to read and write. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags) {
    char path[PATH_MAX];
    if (counts_fd(to, path)) { errno = ENOSYS; return -1; }
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t len) {
    char path[PATH_MAX];
    if (counts_fd(to, path)) { errno = ENOSYS; return -1; }
    return syscall(SYS_sendfile, to, from, offset, len);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t len) {
    char path[PATH_MAX];
    if (counts_fd(to, path)) { errno = ENOSYS; return -1; }
    return syscall(SYS_sendfile, to, from, offset, len);
}

/* ---- opening ---- */

static int faulty_open(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (!writes || !counts_path(dir, name, path)) return (int)syscall(SYS_openat, dir, name, flags, mode);
    struct stat st;
    int makes = (flags & O_CREAT) && fstatat(dir, name, &st, 0);
    const char *what = makes ? "create" : "open";
    enum act act = judge(makes ? CREATE : OPEN, what, path, 0);
    if (act == FAIL) return -1;
    if (act == DIE_FIRST) die();
    int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
    if (act == DIE_AFTER) die();
    return fd;
}

#define MODE_OF(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
int open(const char *name, int flags, ...) { MODE_OF(flags, flags) return faulty_open(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags, flags) return faulty_open(AT_FDCWD, name, flags, mode); }
int openat(int dir, const char *name, int flags, ...) { MODE_OF(flags, flags) return faulty_open(dir, name, flags, mode); }
int openat64(int dir, const char *name, int flags, ...) { MODE_OF(flags, flags) return faulty_open(dir, name, flags, mode); }
int creat(const char *name, mode_t mode) { return faulty_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return faulty_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* ---- length, space, sync ---- */

static int faulty_truncate(int fd, off_t len) {
    char path[PATH_MAX];
    if (!counts_fd(fd, path)) return (int)syscall(SYS_ftruncate, fd, len);
    struct stat st;
    off_t had = fstat(fd, &st) ? 0 : st.st_size;
    enum act act = judge(TRUNCATE, "ftruncate", path, (size_t)len);
    if (act == FAIL) return -1;
    if (act == DIE_FIRST) die();
    int result = (int)syscall(SYS_ftruncate, fd, len);
    if (!result) give_free(had - len);
    if (act == DIE_AFTER) die();
    return result;
}
int ftruncate(int fd, off_t len) { return faulty_truncate(fd, len); }
int ftruncate64(int fd, off64_t len) { return faulty_truncate(fd, len); }

static int faulty_allocate(int fd, int mode, off_t from, off_t len) {
    char path[PATH_MAX];
    if (!counts_fd(fd, path)) return (int)syscall(SYS_fallocate, fd, mode, from, len);
    enum act act = judge(ALLOCATE, "fallocate", path, (size_t)len);
    if (act == FAIL) return -1;
    if (act == DIE_FIRST) die();
    if (act == FROM_FREE) {
        size_t grows = growth(fd, (size_t)len, from), got = take_free(grows);
        if (got < grows) { atomic_fetch_add(&state->free, (int64_t)got); errno = ENOSPC; return -1; }
    }
    int result = (int)syscall(SYS_fallocate, fd, mode, from, len);
    if (act == DIE_AFTER) die();
    return result;
}
int fallocate(int fd, int mode, off_t from, off_t len) { return faulty_allocate(fd, mode, from, len); }
int fallocate64(int fd, int mode, off64_t from, off64_t len) { return faulty_allocate(fd, mode, from, len); }
int posix_fallocate(int fd, off_t from, off_t len) { return faulty_allocate(fd, 0, from, len) ? errno : 0; }
int posix_fallocate64(int fd, off64_t from, off64_t len) { return faulty_allocate(fd, 0, from, len) ? errno : 0; }

int fsync(int fd) {
    char path[PATH_MAX];
    if (!counts_fd(fd, path)) return (int)syscall(SYS_fsync, fd);
    WHOLE(SYNC, path, 0, (int)syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
    char path[PATH_MAX];
    if (!counts_fd(fd, path)) return (int)syscall(SYS_fdatasync, fd);
    WHOLE(SYNC, path, 0, (int)syscall(SYS_fdatasync, fd));
}

/* ---- names ---- */

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    char path[PATH_MAX];
    if (!counts_path(to_dir, to, path)) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
    WHOLE(NAME, path, 0, (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0));
}
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    char path[PATH_MAX];
    if (!counts_path(to_dir, to, path)) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    WHOLE(NAME, path, 0, (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char path[PATH_MAX];
    if (!counts_path(to_dir, to, path)) return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    WHOLE(NAME, path, 0, (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int symlinkat(const char *says, int dir, const char *name) {
    char path[PATH_MAX];
    if (!counts_path(dir, name, path)) return (int)syscall(SYS_symlinkat, says, dir, name);
    WHOLE(MAKE, path, 0, (int)syscall(SYS_symlinkat, says, dir, name));
}
int symlink(const char *says, const char *name) { return symlinkat(says, AT_FDCWD, name); }

int mkdirat(int dir, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!counts_path(dir, name, path)) return (int)syscall(SYS_mkdirat, dir, name, mode);
    WHOLE(MAKE, path, 0, (int)syscall(SYS_mkdirat, dir, name, mode));
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int dir, const char *name, int flags) {
    char path[PATH_MAX];
    if (!counts_path(dir, name, path)) return (int)syscall(SYS_unlinkat, dir, name, flags);
    struct stat st;
    int64_t had = (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) || st.st_nlink > 1) ? 0 : st.st_size;
    enum act act = judge(REMOVE, "unlink", path, 0);
    if (act == FAIL) return -1;
    if (act == DIE_FIRST) die();
    int result = (int)syscall(SYS_unlinkat, dir, name, flags);
    if (!result) give_free(had);
    if (act == DIE_AFTER) die();
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

/* ---- locks ---- */

int flock(int fd, int how) {
    char path[PATH_MAX];
    if ((how & LOCK_UN) || !counts_fd(fd, path)) return (int)syscall(SYS_flock, fd, how);
    WHOLE(LOCK, path, 0, (int)syscall(SYS_flock, fd, how));
}

static int faulty_fcntl(int fd, int command, void *arg) {
    char path[PATH_MAX];
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (!locks || ((struct flock *)arg)->l_type == F_UNLCK || !counts_fd(fd, path))
        return (int)syscall(SYS_fcntl, fd, command, arg);
    WHOLE(LOCK, path, 0, (int)syscall(SYS_fcntl, fd, command, arg));
}
int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *arg = va_arg(rest, void *);
    va_end(rest);
    return faulty_fcntl(fd, command, arg);
}
int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *arg = va_arg(rest, void *);
    va_end(rest);
    return faulty_fcntl(fd, command, arg);
}
