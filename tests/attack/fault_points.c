/* Ends the process, or fails, at the n-th change of files under a folder.
 *
 * Loaded before the C library (LD_PRELOAD), it counts every call that changes files there: opening
 * for writing, writing, renaming, making and removing, by whichever library. At the n-th it kills
 * the process (a write is half done before), or returns an error number, then and ever after, as
 * a full disk does.
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
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t folder_length;
static atomic_long count;
static long fault_at;   /* 0: at none */
static int fault_error; /* 0: killed */

void fault_points_arm(const char *under, long at, int error) {
    strncpy(folder, under, sizeof folder - 1);
    fault_at = at;
    fault_error = error;
    atomic_store(&count, 0);
    folder_length = strlen(folder);
}

long fault_points_count(void) { return atomic_load(&count); }

/* What an armed process starts is armed by its environment, and tells its count in a file. */
__attribute__((constructor)) static void arm_by_environment(void) {
    const char *under = getenv("FAULT_POINTS_UNDER");
    if (under) fault_points_arm(under, atol(getenv("FAULT_POINTS_AT")), atoi(getenv("FAULT_POINTS_ERROR")));
}

__attribute__((destructor)) static void tell_count(void) {
    const char *place = getenv("FAULT_POINTS_COUNT_TO");
    FILE *file = place && getenv("FAULT_POINTS_UNDER") ? fopen(place, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld", atomic_load(&count));
    fclose(file);
}

static int inside(const char *path) {
    return strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == 0);
}

static int descriptor_inside(int descriptor) {
    char link[64], path[PATH_MAX];
    if (descriptor == AT_FDCWD) return getcwd(path, sizeof path) != NULL && inside(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int path_inside(int descriptor, const char *path) {
    if (!folder_length || !path) return 0;
    return path[0] == '/' ? inside(path) : descriptor_inside(descriptor);
}

/* Whether this call is to fail; it does not come back where the process is to be killed. */
static int fails(int is_inside, void (*half)(void *), void *argument) {
    if (!is_inside) return 0;
    long number = atomic_fetch_add(&count, 1) + 1;
    if (!fault_at || number < fault_at) return 0;
    if (half && number == fault_at) half(argument);
    if (!fault_error) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    errno = fault_error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = va_arg(rest, mode_t);                                 \
        va_end(rest);                                                       \
        if (CHANGES(flags) && fails(path_inside(AT_FDCWD, path), 0, 0)) return -1; \
        return REAL(name)(path, flags, mode);                               \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                        \
    int name(int at, const char *path, int flags, ...) {                    \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = va_arg(rest, mode_t);                                 \
        va_end(rest);                                                       \
        if (CHANGES(flags) && fails(path_inside(at, path), 0, 0)) return -1; \
        return REAL(name)(at, path, flags, mode);                           \
    }
OPENAT(openat)
OPENAT(openat64)

struct text { int descriptor; const void *bytes; size_t length; };

static void half_written(void *argument) {
    struct text *text = argument;
    if (text->length > 1) (void)!REAL(write)(text->descriptor, text->bytes, text->length / 2);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    struct text text = {descriptor, bytes, length};
    if (fault_at >= 0 && folder_length && descriptor > 2 &&
        fails(descriptor_inside(descriptor), half_written, &text)) return -1;
    return REAL(write)(descriptor, bytes, length);
}

#define PWRITE(name, offset_type)                                           \
    ssize_t name(int descriptor, const void *bytes, size_t length, offset_type at) { \
        if (folder_length && fails(descriptor_inside(descriptor), 0, 0)) return -1; \
        return REAL(name)(descriptor, bytes, length, at);                   \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int descriptor, const struct iovec *parts, int number) {
    if (folder_length && descriptor > 2 && fails(descriptor_inside(descriptor), 0, 0)) return -1;
    return REAL(writev)(descriptor, parts, number);
}

#define ON_PATH(name)                                                       \
    int name(const char *path) {                                            \
        if (fails(path_inside(AT_FDCWD, path), 0, 0)) return -1;            \
        return REAL(name)(path);                                            \
    }
ON_PATH(unlink)
ON_PATH(rmdir)

int mkdir(const char *path, mode_t mode) {
    if (fails(path_inside(AT_FDCWD, path), 0, 0)) return -1;
    return REAL(mkdir)(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode) {
    if (fails(path_inside(at, path), 0, 0)) return -1;
    return REAL(mkdirat)(at, path, mode);
}

int unlinkat(int at, const char *path, int flags) {
    if (fails(path_inside(at, path), 0, 0)) return -1;
    return REAL(unlinkat)(at, path, flags);
}

int rename(const char *from, const char *to) {
    if (fails(path_inside(AT_FDCWD, from) || path_inside(AT_FDCWD, to), 0, 0)) return -1;
    return REAL(rename)(from, to);
}

int renameat(int at, const char *from, int other, const char *to) {
    if (fails(path_inside(at, from) || path_inside(other, to), 0, 0)) return -1;
    return REAL(renameat)(at, from, other, to);
}

int fsync(int descriptor) {
    if (folder_length && fails(descriptor_inside(descriptor), 0, 0)) return -1;
    return REAL(fsync)(descriptor);
}

int ftruncate(int descriptor, off_t length) {
    if (folder_length && fails(descriptor_inside(descriptor), 0, 0)) return -1;
    return REAL(ftruncate)(descriptor, length);
}
