/*
 * A preload shim that records when a program writes to its log and how long it waits for the disk.
 *
 * It writes one line per process, per write to a session's log and per sync. Elsewhere: the evaluation
 * (xtask/src/bench). It does not change the program's behavior.
 *
 *   MINKE_TIMINGS_LOG   the output file; lines are `PID WHAT START END BYTES MARK`, nanoseconds of the monotonic clock.
 *                       MARK of a write is `llm_call` if the step contains such an entry, else `-`.
 *
 * Build: cc -shared -fPIC -O2 -o timings.so timings.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int log_fd = -1;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(const char *what, uint64_t start, uint64_t end, size_t bytes, const char *mark) {
    if (log_fd < 0) return;
    char line[160];
    int len = snprintf(line, sizeof line, "%d %s %llu %llu %zu %s\n", (int)getpid(), what, (unsigned long long)start,
                       (unsigned long long)end, bytes, mark);
    syscall(SYS_write, log_fd, line, (size_t)len);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MINKE_TIMINGS_LOG");
    if (!path) return;
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd < 0) _exit(99);
    uint64_t t = now();
    note("start", t, t, 0, "-");
}

/* CPU time of the process, if it exits cleanly: START is 0, END the nanoseconds. */
__attribute__((destructor)) static void finish(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    note("cpu", 0, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, 0, "-");
}

/* Returns whether the descriptor is a log file of a session. */
static int is_log(int fd) {
    if (log_fd < 0 || fd <= 2) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 6) return 0;
    path[len] = 0;
    return !strcmp(path + len - 6, ".jsonl") && strstr(path, "/sessions/") != NULL;
}

static const char *mark_of(const void *bytes, size_t len) {
    static const char call[] = "\"kind\":\"llm_call\"";
    return memmem(bytes, len, call, sizeof call - 1) ? "llm_call" : "-";
}

ssize_t write(int fd, const void *bytes, size_t len) {
    if (!is_log(fd)) return syscall(SYS_write, fd, bytes, len);
    uint64_t start = now();
    ssize_t result = syscall(SYS_write, fd, bytes, len);
    note("write", start, now(), len, mark_of(bytes, len));
    return result;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) {
    if (!is_log(fd)) return syscall(SYS_pwrite64, fd, bytes, len, offset);
    uint64_t start = now();
    ssize_t result = syscall(SYS_pwrite64, fd, bytes, len, offset);
    note("write", start, now(), len, mark_of(bytes, len));
    return result;
}

int fdatasync(int fd) {
    uint64_t start = now();
    int result = (int)syscall(SYS_fdatasync, fd);
    note("sync", start, now(), 0, is_log(fd) ? "log" : "-");
    return result;
}

int fsync(int fd) {
    uint64_t start = now();
    int result = (int)syscall(SYS_fsync, fd);
    note("sync", start, now(), 0, is_log(fd) ? "log" : "-");
    return result;
}
