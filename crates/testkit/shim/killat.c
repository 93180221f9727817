/*
 * A tracer that kills a process before its N-th call with a possible external effect.
 *
 * It follows a command and its descendants (ptrace), counts calls and sends one SIGKILL. Elsewhere: the loop over N and
 * the checks (crates/cli/tests/cli/spawn_killed.rs).
 *
 *   killat LOGS BEGIN END WHO N REPORT COMMAND ARGS...
 *
 *   LOGS    a glob of files that are searched for BEGIN and END
 *   BEGIN   counting starts when a file contains this text. The process that wrote it is the parent.
 *   END     counting stops when a file contains this text
 *   WHO     parent: counts the calls of the parent and of its forks until they execute another program; the
 *                   parent dies
 *           beside: counts the calls of the program that it starts; the parent dies
 *           child:  counts the same; that program dies
 *   N       from 1: the process dies before its N-th call. 0: no process dies.
 *   REPORT  a file; one line, `killed N CALL` or `over COUNT`
 *
 * It reads no memory, so it can follow protected processes. After it ends, the followed processes continue
 * alone. Exit: 0, even if no process died; 77 if the kernel forbids tracing; 1 for wrong usage.
 *
 * Build: cc -O2 -o killat killat.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4096
#define LOG_BYTES (8 * 1024 * 1024)

struct thread {
    pid_t id;       /* 0: unused */
    pid_t process;
    pid_t maker;    /* the process that created this thread's process */
    int forked;     /* its process is still a fork of the creator */
    long call;      /* the current call */
};

static struct thread threads[THREADS];
static char *log_text;
static const char *logs, *begin_text, *end_text, *report;
static enum { PARENT, BESIDE, CHILD } who;
static long at, count;
static pid_t parent, child;

static struct thread *known(pid_t id) {
    struct thread *unused = NULL;
    for (int i = 0; i < THREADS; i++) {
        if (threads[i].id == id) return &threads[i];
        if (!threads[i].id && !unused) unused = &threads[i];
    }
    if (!unused) {
        fprintf(stderr, "killat: more than %d threads\n", THREADS);
        exit(1);
    }
    memset(unused, 0, sizeof *unused);
    unused->id = id;
    unused->process = id;
    unused->call = -1;
    return unused;
}

/* Returns the process of a thread. */
static pid_t process_of(pid_t thread) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "re");
    int process = thread;
    if (!file) return thread;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Tgid: %d", &process) == 1) break;
    fclose(file);
    return process;
}

static int stands_in_a_log(const char *text) {
    glob_t found;
    int stands = 0;
    if (glob(logs, 0, NULL, &found)) return 0;
    for (size_t i = 0; i < found.gl_pathc && !stands; i++) {
        int file = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t bytes = pread(file, log_text, LOG_BYTES, 0);
        close(file);
        stands = bytes > 0 && memmem(log_text, bytes, text, strlen(text)) != NULL;
    }
    globfree(&found);
    return stands;
}

static void finish(const char *word, long number, long call) {
    FILE *file = fopen(report, "we");
    if (!file) exit(1);
    fprintf(file, call < 0 ? "%s %ld\n" : "%s %ld %ld\n", word, number, call);
    fclose(file);
    exit(0);
}

/* Returns whether a call could have an effect outside the process. */
static int changes(const struct __ptrace_syscall_info *info) {
    const uint64_t *args = info->entry.args;
    switch (info->entry.nr) {
    case SYS_openat:
        return (args[2] & (O_CREAT | O_TRUNC)) != 0;
#ifdef SYS_open
    case SYS_open:
        return (args[1] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_rename: case SYS_mkdir: case SYS_rmdir: case SYS_unlink: case SYS_link: case SYS_symlink:
    case SYS_chmod: case SYS_fork: case SYS_vfork: case SYS_creat:
#endif
    /* Its arguments are in memory, which is not read. */
    case SYS_openat2:
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2:
    case SYS_fsync: case SYS_fdatasync: case SYS_sync_file_range: case SYS_fallocate:
    case SYS_ftruncate: case SYS_truncate: case SYS_copy_file_range: case SYS_sendfile:
    case SYS_renameat: case SYS_renameat2: case SYS_mkdirat: case SYS_unlinkat: case SYS_linkat: case SYS_symlinkat:
    case SYS_fchmod: case SYS_fchmodat: case SYS_utimensat: case SYS_flock:
    case SYS_clone: case SYS_clone3: case SYS_execve: case SYS_execveat:
    case SYS_sendmsg: case SYS_sendto: case SYS_connect: case SYS_bind: case SYS_listen: case SYS_shutdown:
    case SYS_kill: case SYS_tgkill: case SYS_setpgid: case SYS_setsid:
        return 1;
    case SYS_fcntl:
        return args[1] == F_SETLK || args[1] == F_SETLKW || args[1] == F_OFD_SETLK || args[1] == F_OFD_SETLKW;
    default:
        return 0;
    }
}

static int writes(long call) {
    return call == SYS_write || call == SYS_pwrite64 || call == SYS_writev || call == SYS_pwritev
        || call == SYS_pwritev2;
}

static int counts(const struct thread *thread) {
    if (!parent) return 0;
    if (who == PARENT)
        return thread->process == parent || (thread->forked && thread->maker == parent);
    return child && thread->process == child;
}

static void at_a_call(struct thread *thread) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->id, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        thread->call = info.entry.nr;
        if (!counts(thread) || !changes(&info)) return;
        if (++count != at) return;
        kill(who == CHILD ? child : parent, SIGKILL);
        finish("killed", count, thread->call);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && writes(thread->call) && info.exit.rval > 0) {
        if (!parent && stands_in_a_log(begin_text)) parent = thread->process;
        else if (parent && thread->process == parent && stands_in_a_log(end_text)) finish("over", count, -1);
    }
}

/* Registers a new thread or process; its own event or its creator's may come first. */
static void made(struct thread *maker, pid_t id) {
    struct thread *thread = known(id);
    thread->process = process_of(id);
    if (thread->process == maker->process) {
        thread->forked = maker->forked;
        thread->maker = maker->maker;
    } else {
        thread->forked = 1;
        thread->maker = maker->process;
    }
}

static void another_program(pid_t id) {
    struct thread *thread = known(id);
    thread->forked = 0;
    thread->call = -1;
    if (parent && !child && thread->maker == parent) child = thread->process;
}

/* Handles a stopped thread. Returns the signal to continue with, or -1 if it stays stopped. */
static int stopped(pid_t id, int status) {
    int signal = WSTOPSIG(status), event = status >> 16;
    struct thread *thread = known(id);
    unsigned long other;
    switch (event) {
    case PTRACE_EVENT_CLONE: case PTRACE_EVENT_FORK: case PTRACE_EVENT_VFORK:
        if (!ptrace(PTRACE_GETEVENTMSG, id, 0, &other)) made(thread, (pid_t)other);
        return 0;
    case PTRACE_EVENT_EXEC:
        another_program(id);
        return 0;
    case PTRACE_EVENT_STOP:
        return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU ? -1 : 0;
    }
    if (signal == (SIGTRAP | 0x80)) {
        at_a_call(thread);
        return 0;
    }
    return signal;
}

static pid_t start(char **command) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC)) exit(1);
    pid_t id = fork();
    if (id < 0) exit(1);
    if (!id) {
        char open_now;
        close(gate[1]);
        if (read(gate[0], &open_now, 1) != 1) _exit(1);
        execv(command[0], command);
        _exit(1);
    }
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK
        | PTRACE_O_TRACEEXEC;
    if (ptrace(PTRACE_SEIZE, id, 0, options) || ptrace(PTRACE_INTERRUPT, id, 0, 0)) {
        fprintf(stderr, "killat: nobody can be followed here: %s\n", strerror(errno));
        kill(id, SIGKILL);
        exit(77);
    }
    if (write(gate[1], "", 1) != 1) exit(1);
    close(gate[0]);
    close(gate[1]);
    return id;
}

int main(int argc, char **argv) {
    if (argc < 8) return 1;
    logs = argv[1], begin_text = argv[2], end_text = argv[3];
    if (!strcmp(argv[4], "parent")) who = PARENT;
    else if (!strcmp(argv[4], "beside")) who = BESIDE;
    else if (!strcmp(argv[4], "child")) who = CHILD;
    else return 1;
    at = atol(argv[5]);
    report = argv[6];
    if (!(log_text = malloc(LOG_BYTES))) return 1;
    known(start(argv + 7));
    for (;;) {
        int status;
        pid_t id = waitpid(-1, &status, __WALL);
        if (id < 0 && errno == EINTR) continue;
        if (id < 0) finish("over", count, -1);
        if (!WIFSTOPPED(status)) {
            struct thread *gone = known(id);
            gone->id = 0;
            continue;
        }
        int signal = stopped(id, status);
        /* It may have ended; the next wait reports that. */
        if (signal < 0) ptrace(PTRACE_LISTEN, id, 0, 0);
        else ptrace(PTRACE_SYSCALL, id, 0, (long)signal);
    }
}
