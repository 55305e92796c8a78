/*
 * A shim between a program and its disk, for tests: LD_PRELOAD it and one chosen operation fails, is cut short, is delayed, or kills the process.
 *
 *   SHIM_UNDER=DIR    only what is done to files below this folder (an absolute path without links) counts
 *   SHIM_AT=N         the operation that is hit, counted from 0 over all threads of one process; without it nothing is hit
 *   SHIM_TIMES=K      how many operations from there on are hit; 1 if not given, 0 means all of them
 *   SHIM_ONLY=LETTERS only these kinds count: c(reate) w(rite) s(ync) r(ename, link) t(runcate) u(nlink); all if not given
 *   SHIM_HOW=eio | enospc | short | delay | drop | kill | killed-after
 *                     fail with EIO or ENOSPC before anything is done; write half of it (other kinds: fail with EIO); wait 50 ms; do nothing and say that it
 *                     was done (a sync only); SIGKILL before; SIGKILL after
 *   SHIM_ARMED=FILE   nothing is hit, and nothing counts, while this file does not exist
 *   SHIM_LOG=FILE     a letter is appended for each operation that counts
 *   SHIM_TRACE=FILE   a line is appended for each operation that has been done: its letter and the path; and the letter a for what the program said on stdout
 *
 * What maps a file into memory (SQLite's index of its log) does not pass through here; that file is derived.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum verdict { PASS, FAIL, HALF, DROP, AFTER };

static const char *under, *armed, *only, *how;
static long at = -1, times = 1;
static int log_fd = -1, trace_fd = -1;
static atomic_long count;

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void read_orders(void)
{
    const char *text;
    under = getenv("SHIM_UNDER");
    armed = getenv("SHIM_ARMED");
    only = getenv("SHIM_ONLY");
    how = getenv("SHIM_HOW");
    if ((text = getenv("SHIM_AT"))) at = atol(text);
    if ((text = getenv("SHIM_TIMES"))) times = atol(text);
    if ((text = getenv("SHIM_LOG"))) log_fd = (int)syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if ((text = getenv("SHIM_TRACE"))) trace_fd = (int)syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* Tells what has been done. */
static void trace(char kind, const char *path)
{
    char line[PATH_MAX + 4];
    int kept = errno;
    int length = trace_fd < 0 ? 0 : snprintf(line, sizeof line, "%c %s\n", kind, path);
    if (length > 0 && (length >= (int)sizeof line || syscall(SYS_write, trace_fd, line, length) != length)) abort();
    errno = kept;
}

static int is_below(const char *path)
{
    size_t length = under ? strlen(under) : 0;
    return length && strncmp(path, under, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Names the file that a descriptor is open on. */
static int name_fd(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length >= 0;
}

static int is_below_fd(int fd)
{
    char path[PATH_MAX];
    struct stat found;
    if (!under || fstat(fd, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
    return name_fd(fd, path) && is_below(path);
}

static void trace_fd_of(char kind, int fd)
{
    char path[PATH_MAX];
    if (trace_fd >= 0 && name_fd(fd, path)) trace(kind, path);
}

static void end_here(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Counts an operation and says what becomes of it. */
static enum verdict operation(char kind)
{
    if (only && !strchr(only, kind)) return PASS;
    if (armed && access(armed, F_OK)) return PASS;
    long number = atomic_fetch_add(&count, 1);
    if (log_fd >= 0 && syscall(SYS_write, log_fd, &kind, 1) != 1) return PASS;
    if (at < 0 || number < at || (times && number >= at + times) || !how) return PASS;
    if (!strcmp(how, "kill")) end_here();
    if (!strcmp(how, "killed-after")) return AFTER;
    if (!strcmp(how, "delay")) {
        struct timespec time = { 0, 50 * 1000 * 1000 };
        nanosleep(&time, 0);
        return PASS;
    }
    if (!strcmp(how, "drop")) return kind == 's' ? DROP : PASS;
    if (!strcmp(how, "short") && kind == 'w') return HALF;
    errno = strcmp(how, "enospc") ? EIO : ENOSPC;
    return FAIL;
}

/* Lets an operation happen as it was judged. */
#define JUDGED(kind, counts, call, tell) do { \
        int counted = (counts); \
        enum verdict verdict = counted ? operation(kind) : PASS; \
        if (verdict == FAIL) return -1; \
        if (verdict == DROP) return 0; \
        __typeof__(call) done = call; \
        if (verdict == AFTER) end_here(); \
        if (counted && done >= 0) tell; \
        return done; \
    } while (0)

#define WRITTEN(fd, length, call) do { \
        int counted = is_below_fd(fd); \
        enum verdict verdict = counted ? operation('w') : PASS; \
        if (verdict == FAIL) return -1; \
        if (verdict == HALF) length = length > 1 ? length / 2 : length; \
        if (fd == 1) trace('a', "stdout"); \
        ssize_t done = call; \
        if (verdict == AFTER) end_here(); \
        if (counted && done >= 0) trace_fd_of('w', fd); \
        return done; \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t length)
{
    REAL(write);
    WRITTEN(fd, length, real(fd, bytes, length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    REAL(pwrite);
    WRITTEN(fd, length, real(fd, bytes, length, offset));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    REAL(pwrite64);
    WRITTEN(fd, length, real(fd, bytes, length, offset));
}

int fsync(int fd)
{
    REAL(fsync);
    JUDGED('s', is_below_fd(fd), real(fd), trace_fd_of('s', fd));
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    JUDGED('s', is_below_fd(fd), real(fd), trace_fd_of('s', fd));
}

int ftruncate(int fd, off_t length)
{
    REAL(ftruncate);
    JUDGED('t', is_below_fd(fd), real(fd, length), trace_fd_of('t', fd));
}

int ftruncate64(int fd, off64_t length)
{
    REAL(ftruncate64);
    JUDGED('t', is_below_fd(fd), real(fd, length), trace_fd_of('t', fd));
}

int unlink(const char *path)
{
    REAL(unlink);
    JUDGED('u', is_below(path), real(path), trace('u', path));
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    JUDGED('u', is_below(path) || is_below_fd(folder), real(folder, path, flags), trace('u', path));
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    JUDGED('r', is_below(from) || is_below(to), real(from, to), trace('r', to));
}

int link(const char *from, const char *to)
{
    REAL(link);
    JUDGED('r', is_below(from) || is_below(to), real(from, to), trace('r', to));
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    REAL(linkat);
    JUDGED('r', is_below(from) || is_below(to), real(from_folder, from, to_folder, to, flags), trace('r', to));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    JUDGED('c', is_below(path), real(path, mode), trace('c', path));
}

/* Making a file is an operation; opening one that is there is none. */
static int makes(const char *path, int flags)
{
    return (flags & O_CREAT) && is_below(path) && access(path, F_OK);
}

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...)
{
    REAL(open);
    MODE(flags);
    JUDGED('c', makes(path, flags), real(path, flags, mode), trace('c', path));
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    MODE(flags);
    JUDGED('c', makes(path, flags), real(path, flags, mode), trace('c', path));
}

int openat(int folder, const char *path, int flags, ...)
{
    REAL(openat);
    MODE(flags);
    JUDGED('c', makes(path, flags), real(folder, path, flags, mode), trace('c', path));
}

int openat64(int folder, const char *path, int flags, ...)
{
    REAL(openat64);
    MODE(flags);
    JUDGED('c', makes(path, flags), real(folder, path, flags, mode), trace('c', path));
}
