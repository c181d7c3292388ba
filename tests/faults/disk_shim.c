/* A disk on a test's terms, put between a program and its C library by LD_PRELOAD.
 *
 * Everything below $SAYSO_DISK_FOLDER is watched. Where $SAYSO_DISK_LOG is set, each write, cut,
 * sync and change of a name is added to that file, so that a test can tell what a power cut would
 * have left behind. The first byte of $SAYSO_DISK_STATE says how the disk is at the moment: 'F' is
 * full (nothing grows), 'R' is read-only (nothing changes), anything else is in good order. The
 * files named in $SAYSO_DISK_OUTSIDE (",effects,acks,") are logged and never refused: they stand for
 * what the world outside has seen.
 *
 * A write is logged after it was made; a sync before it begins and after it has ended: what was
 * logged before its beginning is on the disk when it has ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 65536
enum { OTHER, FILE_, FOLDER_, OUTSIDE_ };

struct __attribute__((packed)) head {
    uint8_t op;
    uint32_t thread;
    uint64_t inode, offset;
    uint32_t path, data;
};

static char folder[PATH_MAX];
static size_t folder_length;
static const volatile char *state = "-";
static const char *outside = "";
static int log_fd = -1;
static char watched[MOST];

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *in = getenv("SAYSO_DISK_FOLDER"), *log = getenv("SAYSO_DISK_LOG");
    const char *told = getenv("SAYSO_DISK_STATE");
    if (!in) return;
    if (getenv("SAYSO_DISK_OUTSIDE")) outside = getenv("SAYSO_DISK_OUTSIDE");
    snprintf(folder, sizeof folder, "%s/", in);
    folder_length = strlen(folder);
    if (log && *log)
        log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (told && *told) {
        int fd = syscall(SYS_openat, AT_FDCWD, told, O_RDONLY | O_CLOEXEC, 0);
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
        if (page != MAP_FAILED) state = page;
    }
}

/* The whole path of a name, if it is below the folder; the folder itself counts. */
static int below(int at, const char *name, char *whole) {
    if (!folder_length || !name) return 0;
    if (name[0] == '/' || at != AT_FDCWD)
        snprintf(whole, PATH_MAX, "%s", name);
    else {
        if (!getcwd(whole, PATH_MAX)) return 0;
        size_t used = strlen(whole);
        const char *rest = name[0] == '.' && name[1] == '/' ? name + 2 : name;
        snprintf(whole + used, PATH_MAX - used, "/%s", rest);
    }
    size_t length = strlen(whole);
    if (length == folder_length - 1) return strncmp(whole, folder, length) == 0;
    return strncmp(whole, folder, folder_length) == 0;
}

static int is(int fd, int kind) { return fd >= 0 && fd < MOST && watched[fd] == kind; }

static int is_file(int fd) { return is(fd, FILE_) || is(fd, OUTSIDE_); }

static int is_outside(const char *whole) {
    char name[NAME_MAX + 3];
    snprintf(name, sizeof name, ",%s,", strrchr(whole, '/') + 1);
    return strstr(outside, name) != NULL;
}

static void note(char op, int fd, uint64_t offset, const char *path, const struct iovec *data,
                 int count, size_t length) {
    if (log_fd < 0) return;
    int kept = errno;
    struct stat at = {0};
    if (fd >= 0) fstat(fd, &at);
    struct head head = {op, (uint32_t)syscall(SYS_gettid), at.st_ino, offset,
                        path ? strlen(path) : 0, length};
    struct iovec parts[64] = {{&head, sizeof head}, {(void *)path, head.path}};
    int n = 2;
    for (int i = 0; i < count && length && n < 64; i++) {
        size_t take = data[i].iov_len < length ? data[i].iov_len : length;
        parts[n++] = (struct iovec){data[i].iov_base, take};
        length -= take;
    }
    if (syscall(SYS_writev, log_fd, parts, n) < 0 || length) abort(); /* a hole would tell lies */
    errno = kept;
}

/* -- opening and closing */

static int opened(int fd, int at, const char *name, int flags, int was) {
    char whole[PATH_MAX];
    if (fd < 0 || fd >= MOST) return fd;
    watched[fd] = OTHER;
    if (!below(at, name, whole)) return fd;
    struct stat found;
    if (fstat(fd, &found)) return fd;
    watched[fd] = S_ISDIR(found.st_mode) ? FOLDER_ : S_ISREG(found.st_mode) ? FILE_ : OTHER;
    if (watched[fd] != FILE_) return fd;
    if (is_outside(whole)) watched[fd] = OUTSIDE_;
    if (!was) note('C', fd, 0, whole, NULL, 0, 0);
    else if (flags & O_TRUNC) note('T', fd, 0, NULL, NULL, 0, 0);
    return fd;
}

static int there(int at, const char *name, int flags, int *refused) {
    char whole[PATH_MAX];
    *refused = 0;
    if (!below(at, name, whole)) return 1;
    int was = syscall(SYS_faccessat, AT_FDCWD, whole, F_OK) == 0;
    int makes = (flags & O_CREAT) && !was;
    if (*state == 'R' && !is_outside(whole) && (makes || (flags & O_ACCMODE) != O_RDONLY)) *refused = EROFS;
    return was;
}

#define OPEN(name, at, parameters, arguments) \
    int name parameters { \
        mode_t mode = 0; \
        int refused, was = there(at, path, flags, &refused); \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if (refused) { errno = refused; return -1; } \
        REAL(name); \
        return opened(real arguments, at, path, flags, was); \
    }

OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))

int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }

int close(int fd) {
    REAL(close);
    if (fd >= 0 && fd < MOST) watched[fd] = OTHER;
    return real(fd);
}

/* -- writing */

/* Why a write of so many bytes at this place cannot be made; 0 if it can. */
static int refuses(int fd, uint64_t end) {
    struct stat found;
    if (!is(fd, FILE_) || *state == '-') return 0;
    if (*state == 'R') return EROFS;
    if (*state != 'F' || fstat(fd, &found)) return 0;
    return end > (uint64_t)found.st_size ? ENOSPC : 0;
}

static uint64_t place(int fd) {
    struct stat found;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_APPEND) && fstat(fd, &found) == 0) return found.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

static size_t total(const struct iovec *parts, int count) {
    size_t all = 0;
    for (int i = 0; i < count; i++) all += parts[i].iov_len;
    return all;
}

#define WRITE(type, name, parameters, arguments, at, at_after, parts, count) \
    type name parameters { \
        REAL(name); \
        if (!is_file(fd)) return real arguments; \
        int refused = refuses(fd, at + total(parts, count)); \
        if (refused) { errno = refused; return -1; } \
        type written = real arguments; \
        if (written > 0) note('W', fd, at_after, NULL, parts, count, written); \
        return written; \
    }
/* Where it went is known afterwards: others may add to the same file. */
#define WENT (lseek(fd, 0, SEEK_CUR) - written)
#define ONE (&(struct iovec){(void *)data, size})

WRITE(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), place(fd), WENT,
      ONE, 1)
WRITE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset),
      (fd, data, size, offset), offset, offset, ONE, 1)
WRITE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t offset),
      (fd, data, size, offset), offset, offset, ONE, 1)
WRITE(ssize_t, writev, (int fd, const struct iovec *data, int n), (fd, data, n), place(fd), WENT,
      data, n)
WRITE(ssize_t, pwritev, (int fd, const struct iovec *data, int n, off_t offset),
      (fd, data, n, offset), offset, offset, data, n)
WRITE(ssize_t, pwritev64, (int fd, const struct iovec *data, int n, off64_t offset),
      (fd, data, n, offset), offset, offset, data, n)

#define CUT(name, offset_type) \
    int name(int fd, offset_type size) { \
        REAL(name); \
        int refused = refuses(fd, size); \
        if (refused) { errno = refused; return -1; } \
        int failed = real(fd, size); \
        if (!failed && is_file(fd)) note('T', fd, size, NULL, NULL, 0, 0); \
        return failed; \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

/* Room that is asked for ahead: what is new of it is zeros, as after a cut to a greater size. */
#define ROOM(name, offset_type) \
    int name(int fd, offset_type offset, offset_type size) { \
        REAL(name); \
        int refused = refuses(fd, offset + size); \
        if (refused) return refused; \
        struct stat before; \
        int knows = is_file(fd) && fstat(fd, &before) == 0, failed = real(fd, offset, size); \
        if (!failed && knows && offset + size > before.st_size) \
            note('T', fd, offset + size, NULL, NULL, 0, 0); \
        return failed; \
    }
ROOM(posix_fallocate, off_t)
ROOM(posix_fallocate64, off64_t)

/* -- syncing */

#define SYNC(name) \
    int name(int fd) { \
        REAL(name); \
        int ours = is_file(fd) || is(fd, FOLDER_); \
        char whole[PATH_MAX] = "", link[64]; \
        if (is(fd, FOLDER_)) { \
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd); \
            if (readlink(link, whole, sizeof whole - 1) < 0) abort(); \
        } \
        if (ours) note('B', fd, 0, NULL, NULL, 0, 0); \
        int failed = real(fd); \
        if (ours && !failed) note(*whole ? 'D' : 'S', fd, 0, whole, NULL, 0, 0); \
        return failed; \
    }
SYNC(fsync)
SYNC(fdatasync)

/* -- names */

static int locked(void) {
    if (*state == 'R') errno = EROFS;
    return *state == 'R';
}

int unlink(const char *path) {
    REAL(unlink);
    char whole[PATH_MAX];
    int ours = below(AT_FDCWD, path, whole);
    if (ours && locked()) return -1;
    int failed = real(path);
    if (ours && !failed) note('U', -1, 0, whole, NULL, 0, 0);
    return failed;
}

#define TWO(name, op) \
    int name(const char *from, const char *to) { \
        REAL(name); \
        char whole[PATH_MAX], other[PATH_MAX]; \
        int ours = below(AT_FDCWD, from, whole) && below(AT_FDCWD, to, other); \
        if (ours && locked()) return -1; \
        int failed = real(from, to); \
        struct iovec second = {other, ours ? strlen(other) : 0}; \
        if (ours && !failed) note(op, -1, 0, whole, &second, 1, second.iov_len); \
        return failed; \
    }
TWO(rename, 'N')
TWO(link, 'L')
