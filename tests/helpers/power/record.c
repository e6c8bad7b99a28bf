/* Recorder of file operations below one folder, loaded with LD_PRELOAD; see replay.py for the meaning of the records.
 *
 * POWER_ROOT  the folder (an absolute path without links)
 * POWER_LOG   the file that records are appended to, outside the folder; without it, nothing is recorded
 *
 * A program marks the log with power_mark(text), and makes operations fail with power_fail(kind, nth, errno, mode).
 * Real operations are made by syscall(), so that no call of the C library leads back here.
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
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

enum { OPEN = 1, WRITE, TRUNCATE, EXTEND, SYNC, SYNC_FAILED, RENAME, EXCHANGE, LINK, UNLINK, RMDIR, MKDIR, SYMLINK, MARK, UNSUPPORTED };
enum { FAIL_WRITE = 1, FAIL_SYNC = 2, FAIL_NAME = 3 };            /* kinds of operations that can fail */
enum { ONCE = 0, STICKY = 1, SHORT = 2 };                         /* SHORT: half of the data is written, then all fail */
#define FDS 65536

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint32_t handles[FDS];                                     /* of files below the root; 0: others */
static uint32_t last_handle;
static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1, ready;
static int fail_kind, fail_errno, fail_mode, failing;
static long fail_at, counted;

static void start(void) {
    if (ready) return;
    ready = 1;
    const char *folder = getenv("POWER_ROOT"), *log = getenv("POWER_LOG");
    if (!folder || !*folder) return;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    if (log && *log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void put(const void *data, size_t size) {
    const char *next = data;
    while (size) {
        long done = syscall(SYS_write, log_fd, next, size);
        if (done < 0) { if (errno == EINTR) continue; abort(); }
        next += done, size -= done;
    }
}

static void append(uint32_t type, uint32_t handle, int64_t number, const void *first, size_t n1, const void *second, size_t n2) {
    if (log_fd < 0) return;
    struct { uint32_t type, handle; int64_t number; uint32_t n1, n2; } head = {type, handle, number, n1, n2};
    put(&head, sizeof head);
    put(first, n1);
    put(second, n2);
}

/* Return whether a path is the root or below it, and not shared memory of SQLite, which does not outlive a reboot. */
static int is_inside(const char *path) {
    size_t length = strlen(path);
    if (!root_length || strncmp(path, root, root_length) || (path[root_length] && path[root_length] != '/')) return 0;
    return length < 4 || strcmp(path + length - 4, "-shm");
}

/* Write the absolute path of a name to `out`: links are followed in its folder, not in its last part. */
static int locate(int at, const char *path, char *out) {
    char joined[PATH_MAX], folder[PATH_MAX];
    if (!path || !*path) return 0;
    if (*path == '/') snprintf(joined, sizeof joined, "%s", path);
    else {
        if (at == AT_FDCWD) { if (syscall(SYS_getcwd, folder, sizeof folder) < 0) return 0; }
        else {
            char name[64];
            snprintf(name, sizeof name, "/proc/self/fd/%d", at);
            long size = syscall(SYS_readlinkat, AT_FDCWD, name, folder, sizeof folder - 1);
            if (size < 0) return 0;
            folder[size] = 0;
        }
        if (snprintf(joined, sizeof joined, "%s/%s", folder, path) >= (int)sizeof joined) return 0;
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    char *slash = strrchr(joined, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == joined ? 1 : (int)(slash - joined), joined);
    char resolved[PATH_MAX];
    if (!realpath(folder, resolved)) return 0;
    return snprintf(out, PATH_MAX, "%s/%s", strcmp(resolved, "/") ? resolved : "", slash + 1) < PATH_MAX && is_inside(out);
}

/* Return the path of an open file below the root, or 0. */
static int path_of(int fd, char *out) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlinkat, AT_FDCWD, name, out, PATH_MAX - 1);
    if (size <= 0) return 0;
    out[size] = 0;
    return is_inside(out);
}

static uint32_t handle_of(int fd) { return fd >= 0 && fd < FDS ? handles[fd] : 0; }

static void set_handle(int fd, uint32_t handle) { if (fd >= 0 && fd < FDS) handles[fd] = handle; }

static void unsupported(const char *what, int fd) {
    char path[PATH_MAX], text[PATH_MAX + 64];
    if (!path_of(fd, path)) return;
    append(UNSUPPORTED, 0, 0, text, snprintf(text, sizeof text, "%s of %s", what, path), 0, 0);
}

/* Count an operation; return whether it fails. */
static int fails(int kind) {
    if (kind != fail_kind) return 0;
    counted++;
    if (failing || counted == fail_at) {
        failing = fail_mode != ONCE;
        errno = fail_errno;
        return 1;
    }
    return 0;
}

void power_mark(const char *text) {
    pthread_mutex_lock(&lock);
    start();
    append(MARK, 0, 0, text, strlen(text), 0, 0);
    pthread_mutex_unlock(&lock);
}

/* Let the nth operation of a kind fail from now on; 0 lets all succeed. Return how many of the last kind were counted. */
long power_fail(int kind, long nth, int number, int mode) {
    pthread_mutex_lock(&lock);
    long before = counted;
    fail_kind = kind, fail_at = nth, fail_errno = number, fail_mode = mode, failing = 0, counted = 0;
    pthread_mutex_unlock(&lock);
    return before;
}

#define BEGIN pthread_mutex_lock(&lock); start()
#define END(result) do { int kept = errno; pthread_mutex_unlock(&lock); errno = kept; return result; } while (0)

/* ---- opening and closing ---- */

static void opened(int fd, int flags) {
    char path[PATH_MAX];
    set_handle(fd, 0);
    if (fd < 0 || (flags & O_PATH) || !path_of(fd, path)) return;
    struct stat64 status;
    uint64_t inode = fstat64(fd, &status) ? 0 : status.st_ino;
    set_handle(fd, ++last_handle);
    append(OPEN, last_handle, flags, path, strlen(path), &inode, sizeof inode);
}

static int open_at(int at, const char *path, int flags, mode_t mode) {
    BEGIN;
    char where[PATH_MAX];
    int is_new = (flags & O_CREAT) && locate(at, path, where) && syscall(SYS_faccessat, AT_FDCWD, where, F_OK);
    if (is_new && fails(FAIL_NAME)) END(-1);
    int fd = syscall(SYS_openat, at, path, flags, mode);
    opened(fd, flags);
    END(fd);
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __openat_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_at(at, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    BEGIN;
    set_handle(fd, 0);
    int result = syscall(SYS_close, fd);
    END(result);
}

/* A stream of C writes past this library, except that of C++, which writes to its descriptor by itself. */
static FILE *open_stream(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    BEGIN;
    if (!real) real = (FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen64");
    FILE *stream = real(path, mode);
    if (stream) {
        int flags = *mode == 'r' ? 0 : O_CREAT | (*mode == 'w' ? O_TRUNC : 0);
        opened(fileno(stream), flags | (*mode == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR));
    }
    END(stream);
}
FILE *fopen(const char *path, const char *mode) { return open_stream(path, mode); }
FILE *fopen64(const char *path, const char *mode) { return open_stream(path, mode); }

/* Writes through a stream are recorded as its whole content when it is flushed or closed. */
static unsigned char buffered[FDS];
size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    static size_t (*real)(const void *, size_t, size_t, FILE *);
    if (!real) real = (size_t(*)(const void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fwrite");
    int fd = fileno(stream);
    if (handle_of(fd)) buffered[fd] = 1;
    return real(data, size, count, stream);
}

static void record_content(int fd) {
    if (!handle_of(fd) || !buffered[fd]) return;
    buffered[fd] = 0;
    char part[65536], name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int copy = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    long size, offset = 0;
    while (copy >= 0 && (size = syscall(SYS_pread64, copy, part, sizeof part, offset)) > 0) {
        append(WRITE, handle_of(fd), offset, part, size, 0, 0);
        offset += size;
    }
    if (copy >= 0) syscall(SYS_close, copy);
}

int fflush(FILE *stream) {
    static int (*real)(FILE *);
    BEGIN;
    if (!real) real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fflush");
    int result = real(stream);
    if (stream) record_content(fileno(stream));
    END(result);
}

int fclose(FILE *stream) {
    static int (*real)(FILE *);
    BEGIN;
    if (!real) real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fclose");
    int fd = fileno(stream);
    if (handle_of(fd) && buffered[fd]) { fflush(stream); }
    set_handle(fd, 0);
    int result = real(stream);
    END(result);
}

static int copied(int old, int new) {
    if (new >= 0) set_handle(new, handle_of(old));
    return new;
}
int dup(int fd) { BEGIN; int new = copied(fd, syscall(SYS_dup, fd)); END(new); }
int dup2(int fd, int to) { BEGIN; int new = fd == to ? to : copied(fd, syscall(SYS_dup3, fd, to, 0)); END(new); }
int dup3(int fd, int to, int flags) { BEGIN; int new = copied(fd, syscall(SYS_dup3, fd, to, flags)); END(new); }
static int control(int fd, int command, long argument) {
    int result = syscall(SYS_fcntl, fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) { BEGIN; copied(fd, result); END(result); }
    return result;
}
#define ARGUMENT va_list rest; va_start(rest, command); long argument = va_arg(rest, long); va_end(rest)
int fcntl(int fd, int command, ...) { ARGUMENT; return control(fd, command, argument); }
int fcntl64(int fd, int command, ...) { ARGUMENT; return control(fd, command, argument); }

/* ---- data ---- */

static ssize_t write_at(int fd, const struct iovec *parts, int count, off_t offset, int has_offset) {
    BEGIN;
    uint32_t handle = handle_of(fd);
    char path[PATH_MAX];
    if (!handle && fd > 2 && root_length && log_fd >= 0 && path_of(fd, path)) unsupported("write to an unknown descriptor", fd);
    struct iovec half[1];
    if (handle && fails(FAIL_WRITE)) {
        size_t size = count ? parts[0].iov_len / 2 : 0;
        if (fail_mode != SHORT || counted != fail_at || !size) END(-1);
        half[0] = (struct iovec){parts[0].iov_base, size}, parts = half, count = 1;
    }
    ssize_t done = has_offset ? syscall(SYS_pwritev, fd, parts, count, (long)offset, 0L) : syscall(SYS_writev, fd, parts, count);
    if (handle && done > 0) {
        off_t where = has_offset ? offset : syscall(SYS_lseek, fd, 0, SEEK_CUR) - done;
        ssize_t left = done;
        for (int part = 0; part < count && left > 0; part++) {
            ssize_t size = (ssize_t)parts[part].iov_len < left ? (ssize_t)parts[part].iov_len : left;
            append(WRITE, handle, where, parts[part].iov_base, size, 0, 0);
            where += size, left -= size;
        }
    }
    END(done);
}
#define ONE(data, size) struct iovec one = {(void *)(data), size}
ssize_t write(int fd, const void *data, size_t size) { ONE(data, size); return write_at(fd, &one, 1, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { ONE(data, size); return write_at(fd, &one, 1, at, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { ONE(data, size); return write_at(fd, &one, 1, at, 1); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_at(fd, parts, count, 0, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return write_at(fd, parts, count, at, 1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return write_at(fd, parts, count, at, 1); }

static int resize(int fd, int64_t size) {
    BEGIN;
    if (handle_of(fd) && fails(FAIL_WRITE)) END(-1);
    int result = syscall(SYS_ftruncate, fd, size);
    if (!result && handle_of(fd)) append(TRUNCATE, handle_of(fd), size, 0, 0, 0, 0);
    END(result);
}
int ftruncate(int fd, off_t size) { return resize(fd, size); }
int ftruncate64(int fd, off64_t size) { return resize(fd, size); }
static int resize_path(const char *path, int64_t size) {
    int fd = open_at(AT_FDCWD, path, O_WRONLY, 0);
    if (fd < 0) return -1;
    int result = resize(fd, size), kept = errno;
    close(fd);
    errno = kept;
    return result;
}
int truncate(const char *path, off_t size) { return resize_path(path, size); }
int truncate64(const char *path, off64_t size) { return resize_path(path, size); }

static int allocate(int fd, int mode, int64_t offset, int64_t size) {
    BEGIN;
    if (handle_of(fd) && fails(FAIL_WRITE)) END(-1);
    int result = syscall(SYS_fallocate, fd, mode, offset, size);
    if (!result && handle_of(fd)) {
        if (mode) unsupported("fallocate with a mode", fd);
        append(EXTEND, handle_of(fd), offset + size, 0, 0, 0, 0);
    }
    END(result);
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return allocate(fd, mode, offset, size); }
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return allocate(fd, mode, offset, size); }
int posix_fallocate(int fd, off_t offset, off_t size) { return allocate(fd, 0, offset, size) ? errno : 0; }
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return allocate(fd, 0, offset, size) ? errno : 0; }

/* Copies inside the kernel are refused, so that programs fall back to read and write. */
ssize_t sendfile(int out, int in, off_t *at, size_t size) {
    if (handle_of(out)) { errno = EINVAL; return -1; }
    return syscall(SYS_sendfile, out, in, at, size);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) { return sendfile(out, in, (off_t *)at, size); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (handle_of(out)) { errno = EINVAL; return -1; }
    return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
}
ssize_t splice(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (handle_of(out)) { errno = EINVAL; return -1; }
    return syscall(SYS_splice, in, from, out, to, size, flags);
}

static void *map(void *address, size_t size, int protection, int flags, int fd, int64_t offset) {
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_TYPE) != MAP_PRIVATE && handle_of(fd)) {
        BEGIN; unsupported("writable mmap", fd); pthread_mutex_unlock(&lock);
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) { return map(address, size, protection, flags, fd, offset); }
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) { return map(address, size, protection, flags, fd, offset); }

/* ---- syncing: the number 1 means that the file's names, too, reach the disk on every file system ---- */

static int sync_one(int fd, long call) {
    BEGIN;
    uint32_t handle = handle_of(fd);
    if (handle && fails(FAIL_SYNC)) { append(SYNC_FAILED, handle, 0, 0, 0, 0, 0); errno = fail_errno; END(-1); }
    int result = syscall(call, fd);
    if (!result && handle) append(SYNC, handle, 0, 0, 0, 0, 0);
    END(result);
}
int fsync(int fd) { return sync_one(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_one(fd, SYS_fdatasync); }
int syncfs(int fd) { BEGIN; int result = syscall(SYS_syncfs, fd); append(SYNC, 0, 0, 0, 0, 0, 0); END(result); }
void sync(void) { BEGIN; syscall(SYS_sync); append(SYNC, 0, 0, 0, 0, 0, 0); pthread_mutex_unlock(&lock); }
/* sync_file_range does not make data durable by itself (its size and place may be missing), so it is not recorded. */

/* ---- names ---- */

static int rename_at(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char one[PATH_MAX], other[PATH_MAX];
    BEGIN;
    int from_inside = locate(from_at, from, one), to_inside = locate(to_at, to, other);
    if ((from_inside || to_inside) && fails(FAIL_NAME)) END(-1);
    int result = syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    if (!result && from_inside && to_inside)
        append(flags & RENAME_EXCHANGE ? EXCHANGE : RENAME, 0, 0, one, strlen(one), other, strlen(other));
    else if (!result && (from_inside || to_inside)) append(UNSUPPORTED, 0, 0, "rename across the root", 22, 0, 0);
    END(result);
}
int rename(const char *from, const char *to) { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return rename_at(from_at, from, to_at, to, 0); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) { return rename_at(from_at, from, to_at, to, flags); }

static int link_at(int from_at, const char *from, int to_at, const char *to, int flags) {
    char one[PATH_MAX], other[PATH_MAX];
    BEGIN;
    int inside = locate(from_at, from, one) & locate(to_at, to, other);
    if (inside && fails(FAIL_NAME)) END(-1);
    int result = syscall(SYS_linkat, from_at, from, to_at, to, flags);
    if (!result && inside) append(LINK, 0, 0, one, strlen(one), other, strlen(other));
    END(result);
}
int link(const char *from, const char *to) { return link_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) { return link_at(from_at, from, to_at, to, flags); }

static int unlink_at(int at, const char *path, int flags) {
    char where[PATH_MAX];
    BEGIN;
    int inside = locate(at, path, where);
    int result = syscall(SYS_unlinkat, at, path, flags);
    if (!result && inside) append(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, where, strlen(where), 0, 0);
    END(result);
}
int unlink(const char *path) { return unlink_at(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return unlink_at(at, path, flags); }
int rmdir(const char *path) { return unlink_at(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) { int result = unlink(path); return result && errno == EISDIR ? rmdir(path) : result; }

static int make_folder(int at, const char *path, mode_t mode) {
    char where[PATH_MAX];
    BEGIN;
    int inside = locate(at, path, where);
    if (inside && fails(FAIL_NAME)) END(-1);
    int result = syscall(SYS_mkdirat, at, path, mode);
    if (!result && inside) append(MKDIR, 0, 0, where, strlen(where), 0, 0);
    END(result);
}
int mkdir(const char *path, mode_t mode) { return make_folder(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return make_folder(at, path, mode); }

static int link_to(const char *target, int at, const char *path) {
    char where[PATH_MAX];
    BEGIN;
    int inside = locate(at, path, where);
    int result = syscall(SYS_symlinkat, target, at, path);
    if (!result && inside) append(SYMLINK, 0, 0, where, strlen(where), target, strlen(target));
    END(result);
}
int symlink(const char *target, const char *path) { return link_to(target, AT_FDCWD, path); }
int symlinkat(const char *target, int at, const char *path) { return link_to(target, at, path); }
