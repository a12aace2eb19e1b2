/* Counts the calls by which a process changes files below one folder, and ends or hinders it at the n-th of them.
 *
 * Preloaded (LD_PRELOAD) it does nothing until faults_arm() is called. It then writes one line for each call into a journal:
 * its number, its kind, how many bytes it writes, and the path. At the chosen one the process is killed, stopped or told
 * that the disk is full. Readers are never disturbed: a file that is opened for reading alone does not count.
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
#include <sys/uio.h>
#include <unistd.h>

enum manner { COUNT, BEFORE, AFTER, HALF, NO_SPACE, IO_ERROR, SHORT, FULL_DISK, STOP };
enum effect { PLAIN, GROWS, FREES }; /* what a call does to the room on the disk: a full one still lets files be removed */

static char folder[PATH_MAX];
static size_t folder_length;
static long chosen;
static int manner;
static int journal = -1;
static int armed;
static atomic_long calls;

#define REAL(result, name, ...)                                                                                               \
    static result (*real)(__VA_ARGS__);                                                                                       \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t plain_write(int file, const void *bytes, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(file, bytes, length);
}

/* Watch `path` and what is below it, and act at call number `number` (1 is the first); lines go to the file `lines`. */
void faults_arm(const char *path, long number, int how, int lines) {
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
    chosen = number;
    manner = how;
    journal = lines;
    atomic_store(&calls, 0);
    armed = 1;
}

void faults_disarm(void) { armed = 0; }

long faults_counted(void) { return atomic_load(&calls); }

static int below(const char *path) {
    return strncmp(path, folder, folder_length) == 0 && (path[folder_length] == '/' || path[folder_length] == 0);
}

static int whole_path(int base, const char *path, char *whole) {
    char start[PATH_MAX], link[64];
    if (!path) return 0;
    if (path[0] == '/') return snprintf(whole, PATH_MAX, "%s", path) < PATH_MAX;
    if (base == AT_FDCWD) {
        if (!getcwd(start, sizeof start)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", base);
        ssize_t length = readlink(link, start, sizeof start - 1);
        if (length < 0) return 0;
        start[length] = 0;
    }
    return snprintf(whole, PATH_MAX, "%s/%s", start, path) < PATH_MAX;
}

static int path_of(int file, char *whole) {
    char link[64];
    struct stat facts;
    if (fstat(file, &facts) != 0 || !(S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, whole, PATH_MAX - 1);
    if (length < 0) return 0;
    whole[length] = 0;
    return 1;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* What is to happen at this call: COUNT for nothing, else the chosen manner. */
static int meet(const char *kind, const char *path, size_t length, int effect) {
    if (!armed || !below(path)) return COUNT;
    long number = atomic_fetch_add(&calls, 1) + 1;
    int before = errno;
    char line[PATH_MAX + 96];
    int size = snprintf(line, sizeof line, "%ld\t%s\t%zu\t%s\n", number, kind, length, path);
    if (journal >= 0 && plain_write(journal, line, (size_t)size) != size) abort();
    errno = before;
    if (manner == FULL_DISK && number >= chosen) return effect == GROWS ? NO_SPACE : COUNT;
    if (number != chosen) return COUNT;
    if (manner == BEFORE) die();
    if (manner == STOP) {
        kill(getpid(), SIGSTOP);
        return COUNT;
    }
    return manner;
}

static int meet_file(const char *kind, int file, size_t length, int effect) {
    char path[PATH_MAX];
    return armed && path_of(file, path) ? meet(kind, path, length, effect) : COUNT;
}

static int meet_at(const char *kind, int base, const char *path, int effect) {
    char whole[PATH_MAX];
    return armed && whole_path(base, path, whole) ? meet(kind, whole, 0, effect) : COUNT;
}

/* Carry out a call of which no half exists; one that fails must not have happened. */
#define WHOLE(how, action, failure)                                                                                           \
    do {                                                                                                                      \
        int now = (how);                                                                                                      \
        if (now == NO_SPACE || now == IO_ERROR) {                                                                             \
            errno = now == NO_SPACE ? ENOSPC : EIO;                                                                           \
            return (failure);                                                                                                 \
        }                                                                                                                     \
        __typeof__(action) outcome = (action);                                                                                \
        if (now == AFTER || now == HALF) die();                                                                               \
        return outcome;                                                                                                       \
    } while (0)

/* Carry out a call that writes `length` bytes; `some(n)` writes the first n of them. */
#define WRITING(how, length, some)                                                                                            \
    do {                                                                                                                      \
        int now = (how);                                                                                                      \
        if (now == NO_SPACE || now == IO_ERROR) {                                                                             \
            errno = now == NO_SPACE ? ENOSPC : EIO;                                                                           \
            return -1;                                                                                                        \
        }                                                                                                                     \
        if (now == SHORT && (length) > 1) return some((length) / 2);                                                          \
        ssize_t outcome = now == HALF ? some((length) / 2) : some(length);                                                    \
        if (now == AFTER || now == HALF) die();                                                                               \
        return outcome;                                                                                                       \
    } while (0)

static int writes(int flags) { return (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY; }

#define OPEN(name)                                                                                                            \
    int name(const char *path, int flags, ...) {                                                                              \
        REAL(int, #name, const char *, int, ...);                                                                             \
        va_list rest;                                                                                                         \
        va_start(rest, flags);                                                                                                \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;                                             \
        va_end(rest);                                                                                                         \
        WHOLE(writes(flags) ? meet_at("open", AT_FDCWD, path, GROWS) : COUNT, real(path, flags, mode), -1);                   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                          \
    int name(int base, const char *path, int flags, ...) {                                                                    \
        REAL(int, #name, int, const char *, int, ...);                                                                        \
        va_list rest;                                                                                                         \
        va_start(rest, flags);                                                                                                \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;                                             \
        va_end(rest);                                                                                                         \
        WHOLE(writes(flags) ? meet_at("open", base, path, GROWS) : COUNT, real(base, path, flags, mode), -1);                 \
    }
OPENAT(openat)
OPENAT(openat64)

#define CREAT(name)                                                                                                           \
    int name(const char *path, mode_t mode) {                                                                                 \
        REAL(int, #name, const char *, mode_t);                                                                               \
        WHOLE(meet_at("open", AT_FDCWD, path, GROWS), real(path, mode), -1);                                                  \
    }
CREAT(creat)
CREAT(creat64)

ssize_t write(int file, const void *bytes, size_t length) {
#define SOME(n) plain_write(file, bytes, n)
    WRITING(meet_file("write", file, length, GROWS), length, SOME);
#undef SOME
}

#define PWRITE(name, offset_type)                                                                                             \
    ssize_t name(int file, const void *bytes, size_t length, offset_type offset) {                                            \
        REAL(ssize_t, #name, int, const void *, size_t, offset_type);                                                         \
        WRITING(meet_file("write", file, length, GROWS), length, SOME);                                                       \
    }
#define SOME(n) real(file, bytes, n, offset)
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#undef SOME

/* The first n bytes of several pieces, by plain writes: a half of writev need not be one call. */
static ssize_t write_pieces(int file, const struct iovec *pieces, int count, size_t length) {
    size_t written = 0;
    for (int piece = 0; piece < count && written < length; piece++) {
        size_t part = pieces[piece].iov_len < length - written ? pieces[piece].iov_len : length - written;
        ssize_t done = plain_write(file, pieces[piece].iov_base, part);
        if (done < 0) return written ? (ssize_t)written : -1;
        written += (size_t)done;
        if ((size_t)done < part) break;
    }
    return (ssize_t)written;
}

ssize_t writev(int file, const struct iovec *pieces, int count) {
    size_t length = 0;
    for (int piece = 0; piece < count; piece++) length += pieces[piece].iov_len;
#define SOME(n) write_pieces(file, pieces, count, n)
    WRITING(meet_file("write", file, length, GROWS), length, SOME);
#undef SOME
}

#define ON_FILE(name, kind, effect)                                                                                           \
    int name(int file) {                                                                                                      \
        REAL(int, #name, int);                                                                                                \
        WHOLE(meet_file(kind, file, 0, effect), real(file), -1);                                                              \
    }
ON_FILE(fsync, "fsync", PLAIN)
ON_FILE(fdatasync, "fsync", PLAIN)

#define TRUNCATE(name, offset_type)                                                                                           \
    int name(const char *path, offset_type length) {                                                                          \
        REAL(int, #name, const char *, offset_type);                                                                          \
        WHOLE(meet_at("truncate", AT_FDCWD, path, GROWS), real(path, length), -1);                                            \
    }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)

#define FTRUNCATE(name, offset_type)                                                                                          \
    int name(int file, offset_type length) {                                                                                  \
        REAL(int, #name, int, offset_type);                                                                                   \
        WHOLE(meet_file("truncate", file, 0, GROWS), real(file, length), -1);                                                 \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define FALLOCATE(name, offset_type)                                                                                          \
    int name(int file, int mode, offset_type start, offset_type length) {                                                     \
        REAL(int, #name, int, int, offset_type, offset_type);                                                                 \
        WHOLE(meet_file("fallocate", file, 0, GROWS), real(file, mode, start, length), -1);                                   \
    }
FALLOCATE(fallocate, off_t)
FALLOCATE(fallocate64, off64_t)

/* This one returns its error instead of setting errno. */
#define POSIX_FALLOCATE(name, offset_type)                                                                                    \
    int name(int file, offset_type start, offset_type length) {                                                               \
        REAL(int, #name, int, offset_type, offset_type);                                                                      \
        int how = meet_file("fallocate", file, 0, GROWS);                                                                     \
        WHOLE(how, real(file, start, length), how == NO_SPACE ? ENOSPC : EIO);                                                \
    }
POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    WHOLE(meet_at("rename", AT_FDCWD, to, PLAIN), real(from, to), -1);
}

int renameat(int from_base, const char *from, int to_base, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    WHOLE(meet_at("rename", to_base, to, PLAIN), real(from_base, from, to_base, to), -1);
}

int renameat2(int from_base, const char *from, int to_base, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    WHOLE(meet_at("rename", to_base, to, PLAIN), real(from_base, from, to_base, to, flags), -1);
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    WHOLE(meet_at("link", AT_FDCWD, to, GROWS), real(from, to), -1);
}

int linkat(int from_base, const char *from, int to_base, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    WHOLE(meet_at("link", to_base, to, GROWS), real(from_base, from, to_base, to, flags), -1);
}

int symlink(const char *content, const char *path) {
    REAL(int, "symlink", const char *, const char *);
    WHOLE(meet_at("link", AT_FDCWD, path, GROWS), real(content, path), -1);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    WHOLE(meet_at("mkdir", AT_FDCWD, path, GROWS), real(path, mode), -1);
}

int mkdirat(int base, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    WHOLE(meet_at("mkdir", base, path, GROWS), real(base, path, mode), -1);
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    WHOLE(meet_at("rmdir", AT_FDCWD, path, FREES), real(path), -1);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    WHOLE(meet_at("unlink", AT_FDCWD, path, FREES), real(path), -1);
}

int unlinkat(int base, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    WHOLE(meet_at(flags & AT_REMOVEDIR ? "rmdir" : "unlink", base, path, FREES), real(base, path, flags), -1);
}

int chmod(const char *path, mode_t mode) {
    REAL(int, "chmod", const char *, mode_t);
    WHOLE(meet_at("chmod", AT_FDCWD, path, PLAIN), real(path, mode), -1);
}

int fchmod(int file, mode_t mode) {
    REAL(int, "fchmod", int, mode_t);
    WHOLE(meet_file("chmod", file, 0, PLAIN), real(file, mode), -1);
}

int fchmodat(int base, const char *path, mode_t mode, int flags) {
    REAL(int, "fchmodat", int, const char *, mode_t, int);
    WHOLE(meet_at("chmod", base, path, PLAIN), real(base, path, mode, flags), -1);
}

#define SENDFILE(name, offset_type)                                                                                           \
    ssize_t name(int to, int from, offset_type *offset, size_t length) {                                                      \
        REAL(ssize_t, #name, int, int, offset_type *, size_t);                                                                \
        WRITING(meet_file("write", to, length, GROWS), length, SOME);                                                         \
    }
#define SOME(n) real(to, from, offset, n)
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)
#undef SOME

ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
#define SOME(n) real(from, from_offset, to, to_offset, n, flags)
    WRITING(meet_file("write", to, length, GROWS), length, SOME);
#undef SOME
}

int msync(void *start, size_t length, int flags) {
    REAL(int, "msync", void *, size_t, int);
    /* which file is mapped there is not known: it counts as one in the folder */
    WHOLE(armed ? meet("msync", folder, length, PLAIN) : COUNT, real(start, length, flags), -1);
}

/* Some libraries reach newer calls by number. */
long syscall(long number, ...) {
    REAL(long, "syscall", long, ...);
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    int how = COUNT;
    if (armed && number == SYS_renameat2) how = meet_at("rename", (int)c, (const char *)d, PLAIN);
    WHOLE(how, real(number, a, b, c, d, e, f), -1);
}
