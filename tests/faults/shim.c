/* Loaded before the C library: while the file named by FAULTS_TRIGGER is there, writing to a SQLite database or
   flushing it fails with EIO, as on a disk that is going. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *trigger = getenv("FAULTS_TRIGGER");
    char link[64], path[4096];
    if (trigger == NULL || access(trigger, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, "cbwk.db") != NULL && strstr(path, ".lock") == NULL;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL(fd) if (fails(fd)) { errno = EIO; return -1; }

ssize_t write(int fd, const void *bytes, size_t count) { REAL(write); FAIL(fd) return real(fd, bytes, count); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { REAL(pwrite); FAIL(fd) return real(fd, bytes, count, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { REAL(pwrite64); FAIL(fd) return real(fd, bytes, count, at); }
int fsync(int fd) { REAL(fsync); FAIL(fd) return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); FAIL(fd) return real(fd); }
