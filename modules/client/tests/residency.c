/*
 * The tests for residency with real files of the scratch directory: contents
 * that were dropped, and names that were never looked up.
 */

#define _GNU_SOURCE

#include "check.h"
#include "flash_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>


#define FILE_BYTES  (1024 * 1024 + 123)
#define HALF        (512 * 1024)

/* cachestat(2), which not every C library names. */
#define CACHESTAT  451

#ifndef RWF_NOWAIT
#define RWF_NOWAIT  0x00000008
#endif


static void test_ranges(void);
static void test_odd_ranges(void);
static void test_under_way(void);
static void test_holes_under_way(void);
static void test_other_files(void);
static void test_names(void);
static void test_access_time(void);
static void read_range(int fd, size_t offset, size_t length);


void
test_residency(void)
{
    test_ranges();
    test_odd_ranges();
    test_under_way();
    test_holes_under_way();
    test_other_files();
    test_names();
    test_access_time();
    printf("residency: ok\n");
}


static void
test_ranges(void)
{
    int                fd;
    char               room[PATH_ROOM];
    flash_residency_t  whole;

    write_file(scratch(room, "ranges"), FILE_BYTES);
    fd = open_prepared(room);
    read_range(fd, 0, FILE_BYTES);
    whole = flash_test_range(fd, 0, FILE_BYTES);

    if (whole == FLASH_UNTESTABLE) {
        skip("no residency is reported by this file system here");
        goto done;
    }

    CHECK_EQ(whole, FLASH_RESIDENT);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    whole = flash_test_range(fd, 0, FILE_BYTES);

    if (whole == FLASH_RESIDENT) {
        skip("no eviction by posix_fadvise on this file system here");
        goto done;
    }

    /* A test does not bring anything into memory that the next one finds. */

    CHECK_EQ(whole, FLASH_COLD);
    CHECK_EQ(flash_test_range(fd, 0, 1), FLASH_COLD);
    CHECK_EQ(flash_test_range(fd, FILE_BYTES - 1, 1), FLASH_COLD);

    read_range(fd, 0, HALF);
    CHECK_EQ(flash_test_range(fd, 0, HALF), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, HALF - 1, 1), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_COLD);
    CHECK_EQ(flash_test_range(fd, FILE_BYTES - 1, 1), FLASH_COLD);

    read_range(fd, HALF, FILE_BYTES - HALF);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);

    /* The end is there, the beginning is not. */

    CHECK(posix_fadvise(fd, 0, HALF, POSIX_FADV_DONTNEED) == 0);
    CHECK_EQ(flash_test_range(fd, HALF, HALF), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_COLD);

done:

    CHECK(close(fd) == 0);
    CHECK(unlink(room) == 0);
}


/* Ranges beyond the end are resident as far as the file goes. */

static void
test_odd_ranges(void)
{
    int                fd;
    char               room[PATH_ROOM];
    flash_residency_t  hot, cold;

    write_file(scratch(room, "odd"), 10000);
    fd = open_prepared(room);
    read_range(fd, 0, 10000);
    hot = flash_test_range(fd, 0, 10000);
    CHECK(hot == FLASH_RESIDENT || hot == FLASH_UNTESTABLE);

    CHECK_EQ(flash_test_range(fd, 0, 0), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, UINT64_MAX, UINT64_MAX), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, INT64_MAX, 1), FLASH_RESIDENT);

    CHECK_EQ(flash_test_range(fd, 0, 12288), hot);
    CHECK_EQ(flash_test_range(fd, 0, 12289), hot);
    CHECK_EQ(flash_test_range(fd, 9999, UINT64_MAX), hot);
    CHECK_EQ(flash_test_range(fd, 0, INT64_MAX), hot);
    CHECK_EQ(flash_test_range(fd, INT64_MAX - 1, UINT64_MAX),
             hot);

    (void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    cold = flash_test_range(fd, 0, 10000);
    CHECK_EQ(flash_test_range(fd, 9999, UINT64_MAX), cold);
    CHECK_EQ(flash_test_range(fd, 0, INT64_MAX), cold);
    CHECK(close(fd) == 0);

    write_file(room, 0);
    fd = open_prepared(room);
    CHECK(flash_test_range(fd, 0, 1) != FLASH_COLD);
    CHECK(close(fd) == 0);
    CHECK(unlink(room) == 0);
}


/*
 * Whether some pages of a file have left memory, as they may at any time: other
 * tests drop all caches.  Pages whose reads are under way are there.
 */

static int
has_lost_pages(int fd, uint64_t length)
{
    long      page;
    uint64_t  range[2] = { 0, length };
    /* The pages that are there, and four other numbers (cachestat(2)). */
    uint64_t  stat[5] = { 0, 0, 0, 0, 0 };

    page = sysconf(_SC_PAGESIZE);

    if (syscall(CACHESTAT, fd, range, stat, 0) == -1) {
        return 0;
    }

    return stat[0] < length / (uint64_t) page;
}


/*
 * Reads are under way, in any order: if the range is resident, then all of it
 * can be read without waiting, unless a part of it has left memory since.
 */

static void
test_under_way(void)
{
    int              fd, other, turn, i;
    char             room[PATH_ROOM];
    off_t            part;
    ssize_t          n;
    struct iovec     iov;

    static char  bytes[HALF];

    write_file(scratch(room, "way"), HALF);
    fd = open_prepared(room);
    other = open(room, O_RDONLY|O_CLOEXEC);
    CHECK(other != -1);
    iov.iov_base = bytes;
    iov.iov_len = HALF;

    for (turn = 0; turn < 200; turn++) {
        (void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);

        for (i = 0; i < 4; i++) {
            part = (off_t) ((turn + 3 * i) % 4) * (HALF / 4);
            (void) posix_fadvise(other, part, HALF / 4, POSIX_FADV_WILLNEED);
        }

        for (i = 0; i < 100000; i++) {

            if (flash_test_range(fd, 0, HALF) == FLASH_RESIDENT) {
                n = preadv2(fd, &iov, 1, 0, RWF_NOWAIT);

                if (!has_lost_pages(fd, HALF)) {
                    CHECK_EQ(n, HALF);
                }

                break;
            }
        }

        read_range(fd, 0, HALF);
    }

    CHECK(close(fd) == 0 && close(other) == 0);
    CHECK(unlink(room) == 0);
}


/* The same, while only a few pages within the range are missing. */

static void
test_holes_under_way(void)
{
    int           fd, other, turn;
    long          page;
    char          room[PATH_ROOM];
    off_t         hole;
    ssize_t       n;
    struct iovec  iov;

    static char  bytes[HALF];

    page = sysconf(_SC_PAGESIZE);
    write_file(scratch(room, "holes"), HALF);
    fd = open_prepared(room);
    other = open(room, O_RDONLY|O_CLOEXEC);
    CHECK(other != -1);
    (void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void) posix_fadvise(other, 0, HALF, POSIX_FADV_WILLNEED);
    read_range(fd, 0, HALF);
    iov.iov_base = bytes;
    iov.iov_len = HALF;

    for (turn = 0; turn < 200; turn++) {
        hole = (off_t) (1 + turn % 16 * 4) * page;
        (void) posix_fadvise(fd, hole, 2 * page, POSIX_FADV_DONTNEED);
        (void) posix_fadvise(other, hole, 2 * page, POSIX_FADV_WILLNEED);

        if (flash_test_range(fd, 0, HALF) == FLASH_RESIDENT) {
            n = preadv2(fd, &iov, 1, 0, RWF_NOWAIT);

            if (!has_lost_pages(fd, HALF)) {
                CHECK_EQ(n, HALF);
            }
        }

        read_range(fd, 0, HALF);
    }

    CHECK(close(fd) == 0 && close(other) == 0);
    CHECK(unlink(room) == 0);
}


/* No regular files, no files at all: nothing waits, nothing is cold. */

static void
test_other_files(void)
{
    int  ends[2], fd;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK_EQ(flash_test_range(ends[0], 0, 100), FLASH_UNTESTABLE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK_EQ(flash_test_range(ends[0], 0, 100), FLASH_UNTESTABLE);
    CHECK_EQ(flash_test_range(-1, 0, 100), FLASH_UNTESTABLE);

    fd = open(scratch_dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    CHECK(fd != -1);
    CHECK_EQ(flash_test_range(fd, 0, 100), FLASH_UNTESTABLE);
    CHECK(close(fd) == 0);
    flash_prepare(-1);
}


static void
test_names(void)
{
    int          pin;
    char         room[PATH_ROOM], missing[PATH_ROOM], beneath[PATH_ROOM + 8];
    struct stat  st;

    write_file(scratch(room, "name"), 10);

    if (flash_test_name(room, &pin) == FLASH_UNTESTABLE) {
        CHECK_EQ(pin, -1);
        skip("no openat2 with RESOLVE_CACHED here");
        CHECK(unlink(room) == 0);
        return;
    }

    CHECK(pin != -1);
    CHECK(fcntl(pin, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(pin, F_GETFL) & O_PATH);
    CHECK(close(pin) == 0);

    (void) snprintf(beneath, sizeof(beneath), "%s/x", room);
    CHECK(flash_test_name(beneath, &pin) == FLASH_COLD || errno == ENOTDIR);
    CHECK_EQ(pin, -1);
    CHECK(unlink(room) == 0);

    /* The kernel keeps no entry for a name that nobody has asked for yet, and
     * one that says "missing" afterwards. */

    (void) snprintf(missing, sizeof(missing), "%s/missing-%d", scratch_dir,
                    (int) getpid());
    CHECK_EQ(flash_test_name(missing, &pin), FLASH_COLD);
    CHECK_EQ(pin, -1);
    CHECK(stat(missing, &st) == -1 && errno == ENOENT);
    CHECK_EQ(flash_test_name(missing, &pin), FLASH_RESIDENT);
    CHECK(pin == -1 && errno == ENOENT);

    CHECK_EQ(flash_test_name("", &pin), FLASH_RESIDENT);
    CHECK(pin == -1 && errno == ENOENT);
}


/* A read after a change updates the access time (relatime), unless the file is
 * this user's and was prepared. */

static void
test_access_time(void)
{
    int              fd, turn;
    char             room[PATH_ROOM];
    struct stat      st;
    struct timespec  old[2];

    memset(old, 0, sizeof(old));
    old[0].tv_sec = 1000000000;
    old[1].tv_nsec = UTIME_OMIT;
    write_file(scratch(room, "access"), 10000);
    CHECK(utimensat(AT_FDCWD, room, old, 0) == 0);

    for (turn = 0; turn < 2; turn++) {
        fd = open(room, O_RDONLY|O_CLOEXEC);
        CHECK(fd != -1);

        if (turn == 0) {
            CHECK_EQ(flash_keep_access_time(fd), 1);
            CHECK_EQ(flash_keep_access_time(fd), 1);
        }

        (void) flash_test_range(fd, 0, 10000);
        read_range(fd, 0, 10000);
        CHECK(fstat(fd, &st) == 0 && close(fd) == 0);

        if (turn == 0) {
            CHECK_EQ(st.st_atim.tv_sec, old[0].tv_sec);

        } else if (st.st_atim.tv_sec == old[0].tv_sec) {
            skip("no access times on this file system");
        }
    }

    CHECK(unlink(room) == 0);
    CHECK_EQ(flash_keep_access_time(-1), 0);
}


static void
read_range(int fd, size_t offset, size_t length)
{
    size_t  part;

    static char  bytes[65536];

    while (length > 0) {
        part = length < sizeof(bytes) ? length : sizeof(bytes);
        CHECK(pread(fd, bytes, part, (off_t) offset) == (ssize_t) part);
        offset += part;
        length -= part;
    }
}
