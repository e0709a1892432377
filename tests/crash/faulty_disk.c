/* A disk that fails on demand: preloaded (LD_PRELOAD) before a process under test.
 *
 * Only files whose path begins with $FAULTY_DISK are touched. The file $FAULTY_DISK_CONTROL holds lines
 * that are read again at every call, so that the process under test, or its parent, can change them:
 *
 *   fsync ERRNO     fsync and fdatasync fail with this number
 *   write ERRNO     every write fails with this number
 *   space OCTETS    files may grow by so many octets in all (counted since the process began, its forked children with it,
 *                   falling when a file is removed or cut); then writes are short, and after that fail with ENOSPC.
 *                   statvfs tells what is left
 *   shadow FOLDER   after each fsync that succeeds, the file is copied there under its own name: what a disk would hold
 *                   that loses everything not synced when the power fails
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static long long *grown; /* octets that files have grown by; shared with forked children */

struct control {
    int fsync_error, write_error;
    long long space; /* -1: no limit */
    char shadow[PATH_MAX];
};

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_truncate)(const char *, off_t);
static int (*real_unlink)(const char *);
static int (*real_statvfs)(const char *, struct statvfs64 *);
static int (*real_fallocate)(int, off_t, off_t);

__attribute__((constructor)) static void find_real(void)
{
    grown = mmap(NULL, sizeof *grown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED)
        abort();
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_truncate = dlsym(RTLD_NEXT, "truncate64");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_statvfs = dlsym(RTLD_NEXT, "statvfs64");
    real_fallocate = dlsym(RTLD_NEXT, "posix_fallocate64");
}

static void grow(long long octets)
{
    __atomic_add_fetch(grown, octets, __ATOMIC_SEQ_CST);
}

static long long left_of(long long space)
{
    return space - __atomic_load_n(grown, __ATOMIC_SEQ_CST);
}

static int is_ours(const char *path)
{
    const char *prefix = getenv("FAULTY_DISK");
    char folder[PATH_MAX], whole[2 * PATH_MAX];
    if (path[0] != '/' && getcwd(folder, sizeof folder) != NULL) {
        snprintf(whole, sizeof whole, "%s/%s", folder, path);
        path = whole;
    }
    return prefix != NULL && strncmp(path, prefix, strlen(prefix)) == 0;
}

/* The path of a descriptor; 0 when it is not one of the files under test. */
static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return is_ours(path);
}

static void read_control(struct control *control)
{
    memset(control, 0, sizeof *control);
    control->space = -1;
    const char *name = getenv("FAULTY_DISK_CONTROL");
    FILE *file = name == NULL ? NULL : fopen(name, "re");
    if (file == NULL)
        return;
    char key[32], value[PATH_MAX];
    while (fscanf(file, "%31s %4095s", key, value) == 2) {
        if (strcmp(key, "fsync") == 0)
            control->fsync_error = atoi(value);
        else if (strcmp(key, "write") == 0)
            control->write_error = atoi(value);
        else if (strcmp(key, "space") == 0)
            control->space = atoll(value);
        else if (strcmp(key, "shadow") == 0)
            strcpy(control->shadow, value);
    }
    fclose(file);
}

static long long size_of(int file)
{
    struct stat found;
    return fstat(file, &found) == 0 ? (long long)found.st_size : 0;
}

/* How much of a write may be done: `count`, less, or -1 with errno set. */
static ssize_t allowed(int file, size_t count, off_t offset)
{
    struct control control;
    read_control(&control);
    if (control.write_error) {
        errno = control.write_error;
        return -1;
    }
    long long size = size_of(file), end = offset + (long long)count;
    if (control.space < 0 || end <= size) {
        if (end > size)
            grow(end - size);
        return (ssize_t)count;
    }
    long long left = left_of(control.space);
    if (left < end - size)
        end = size + (left > 0 ? left : 0);
    if (end <= offset) {
        errno = ENOSPC;
        return -1;
    }
    if (end > size)
        grow(end - size);
    return (ssize_t)(end - offset);
}

ssize_t pwrite64(int file, const void *octets, size_t count, off_t offset)
{
    char path[PATH_MAX];
    if (path_of(file, path)) {
        ssize_t most = allowed(file, count, offset);
        if (most < 0)
            return -1;
        count = (size_t)most;
    }
    return real_pwrite(file, octets, count, offset);
}

ssize_t pwrite(int file, const void *octets, size_t count, off_t offset)
{
    return pwrite64(file, octets, count, offset);
}

ssize_t write(int file, const void *octets, size_t count)
{
    char path[PATH_MAX];
    if (path_of(file, path)) {
        ssize_t most = allowed(file, count, lseek(file, 0, SEEK_CUR));
        if (most < 0)
            return -1;
        count = (size_t)most;
    }
    return real_write(file, octets, count);
}

int statvfs64(const char *path, struct statvfs64 *found)
{
    struct control control;
    int result = real_statvfs(path, found);
    if (result != 0 || !is_ours(path))
        return result;
    read_control(&control);
    if (control.space >= 0) {
        long long left = left_of(control.space);
        found->f_bavail = found->f_bfree = left > 0 ? (fsblkcnt64_t)left / found->f_frsize : 0;
    }
    return 0;
}

int statvfs(const char *path, struct statvfs *found)
{
    /* The same structure where off_t has 64 bits. */
    return statvfs64(path, (struct statvfs64 *)found);
}

static void copy_to_shadow(const char *path, const char *folder)
{
    char name[2 * PATH_MAX], octets[65536];
    const char *last = strrchr(path, '/');
    snprintf(name, sizeof name, "%s/%s.part", folder, last + 1);
    int copy = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (copy < 0)
        abort();
    off_t offset = 0;
    ssize_t count;
    /* By another descriptor: this one may be for writing only. */
    int source = open(path, O_RDONLY | O_CLOEXEC);
    while ((count = pread(source, octets, sizeof octets, offset)) > 0) {
        if (real_write(copy, octets, (size_t)count) != count)
            abort();
        offset += count;
    }
    close(source);
    close(copy);
    char whole[2 * PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", folder, last + 1);
    if (rename(name, whole) != 0)
        abort();
}

static int synced(int file, int (*real)(int))
{
    char path[PATH_MAX];
    struct control control;
    if (!path_of(file, path))
        return real(file);
    read_control(&control);
    if (control.fsync_error) {
        errno = control.fsync_error;
        return -1;
    }
    int result = real(file);
    struct stat found;
    if (result == 0 && control.shadow[0] && fstat(file, &found) == 0 && S_ISREG(found.st_mode))
        copy_to_shadow(path, control.shadow);
    return result;
}

int fsync(int file)
{
    return synced(file, real_fsync);
}

int fdatasync(int file)
{
    return synced(file, real_fdatasync);
}

int ftruncate64(int file, off_t length)
{
    char path[PATH_MAX];
    long long before = path_of(file, path) ? size_of(file) : length;
    int result = real_ftruncate(file, length);
    if (result == 0)
        grow(length - before);
    return result;
}

int ftruncate(int file, off_t length)
{
    return ftruncate64(file, length);
}

int truncate64(const char *path, off_t length)
{
    struct stat found;
    int counted = is_ours(path) && stat(path, &found) == 0;
    int result = real_truncate(path, length);
    if (result == 0 && counted)
        grow(length - found.st_size);
    return result;
}

int truncate(const char *path, off_t length)
{
    return truncate64(path, length);
}

int posix_fallocate64(int file, off_t offset, off_t length)
{
    char path[PATH_MAX];
    if (path_of(file, path)) {
        ssize_t most = allowed(file, (size_t)length, offset);
        if (most < 0)
            return errno;
        if (most < length) {
            grow(-most);
            return ENOSPC;
        }
    }
    return real_fallocate(file, offset, length);
}

int posix_fallocate(int file, off_t offset, off_t length)
{
    return posix_fallocate64(file, offset, length);
}

int unlink(const char *path)
{
    struct stat found;
    int counted = is_ours(path) && stat(path, &found) == 0;
    int result = real_unlink(path);
    if (result == 0 && counted)
        grow(-found.st_size);
    return result;
}
