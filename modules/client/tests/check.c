/* The frame of the client's tests; see check.h. */

#define _GNU_SOURCE

#include "check.h"
#include "flash_client.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>


const char  *scratch_dir;


void
check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, condition);
    _exit(1);
}


void
check_equal(const char *file, int line, const char *text, int64_t got,
    int64_t expected)
{
    if (got != expected) {
        fprintf(stderr, "%s:%d: failed: %s is %" PRId64 " and not %" PRId64
                "\n", file, line, text, got, expected);
        _exit(1);
    }
}


void
skip(const char *format, ...)
{
    va_list  args;

    /* A child ends by _exit(), so nothing may stay in the buffer. */

    va_start(args, format);
    printf("skip: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}


void
in_child(void (*body)(void))
{
    int    status;
    pid_t  child;

    fflush(stdout);
    child = fork();
    CHECK(child != -1);

    if (child == 0) {
        body();
        _exit(0);
    }

    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}


const char *
scratch(char room[PATH_ROOM], const char *name)
{
    int  length;

    length = snprintf(room, PATH_ROOM, "%s/%s", scratch_dir, name);
    CHECK(length > 0 && length < PATH_ROOM);

    return room;
}


void
write_file(const char *path, size_t bytes)
{
    int            fd;
    size_t         i, part;
    unsigned char  block[4096];

    for (i = 0; i < sizeof(block); i++) {
        block[i] = (unsigned char) (i * 7);
    }

    fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0644);
    CHECK(fd != -1);

    while (bytes > 0) {
        part = bytes < sizeof(block) ? bytes : sizeof(block);
        CHECK(write(fd, block, part) == (ssize_t) part);
        bytes -= part;
    }

    CHECK(fsync(fd) == 0);
    CHECK(close(fd) == 0);
}


int
open_prepared(const char *path)
{
    int  fd;

    fd = open(path, O_RDONLY|O_CLOEXEC);
    CHECK(fd != -1);
    flash_prepare(fd);

    return fd;
}


size_t
count_descriptors(void)
{
    DIR     *dir;
    size_t   count;

    dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);

    for (count = 0; readdir(dir) != NULL; count++) { /* void */ }

    CHECK(closedir(dir) == 0);

    return count;
}
