/*
 * Client of `flash backend`: the tests whether something is in memory.  The
 * callers and the rules are in flash_client.h.
 *
 * Both servers accept kernels and C libraries that lack openat2(2) and
 * cachestat(2): these are called by number, with definitions of our own.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS  64
#endif

#include "flash_client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>


/* System calls.  These architectures number theirs in another way. */

#if defined(__alpha__) || defined(__mips__)                                   \
    || (defined(__x86_64__) && defined(__ILP32__))
#define FLASH_OWN_NUMBERS  0
#else
#define FLASH_OWN_NUMBERS  1
#endif

#if !defined(SYS_openat2) && FLASH_OWN_NUMBERS
#define SYS_openat2    437
#endif
#if !defined(SYS_cachestat) && FLASH_OWN_NUMBERS
#define SYS_cachestat  451
#endif

#ifndef RWF_NOWAIT
#define RWF_NOWAIT  0x00000008
#endif

#define FLASH_RESOLVE_CACHED    0x20
#define FLASH_TMPFS_MAGIC       0x01021994
#define FLASH_OVERLAYFS_MAGIC   0x794c7630

typedef struct {
    uint64_t  flags;
    uint64_t  mode;
    uint64_t  resolve;
} flash_open_how_t;

typedef struct {
    uint64_t  offset;
    uint64_t  length;
} flash_cachestat_range_t;

typedef struct {
    uint64_t  cached;
    uint64_t  dirty;
    uint64_t  writeback;
    uint64_t  evicted;
    uint64_t  recently_evicted;
} flash_cachestat_t;

/* A test of a range within the file, where cachestat is not allowed. */

typedef flash_residency_t (*flash_range_test_t)(int fd, uint64_t offset,
    uint64_t length);


/* Beyond the end of every file. */
#define FLASH_BEYOND           ((uint64_t) 1 << 62)

/* Pages that one call of mincore(2) is asked for. */
#define FLASH_MINCORE_PAGES    256

/* A power of two; no more than the kernel's readahead, 128 KB by default. */
#define FLASH_ARRIVED_STEP     65536

/*
 * The memory of a test by reading.  All parts of a call read into the same
 * memory, which stays in the processor's first cache.  A call reads a whole
 * window, so that a miss starts one read of the disk.
 */
#define FLASH_SCRATCH          16384
#define FLASH_SCRATCH_PARTS    (FLASH_RANGE_MAX / FLASH_SCRATCH)


static int flash_cachestat(int fd, uint64_t offset, uint64_t length,
    flash_cachestat_t *stat);
static ssize_t flash_read_byte(int fd, uint64_t offset);
static int flash_clip(int fd, uint64_t offset, uint64_t *length);
static uint64_t flash_pages(uint64_t offset, uint64_t length);
static int flash_arrived(int fd, uint64_t offset, uint64_t length);
static int flash_is_read(int fd, uint64_t offset, uint64_t length);
static flash_residency_t flash_test_unread(int fd, int supported,
    const flash_cachestat_t *stat);
static flash_residency_t flash_test_by(flash_range_test_t otherwise, int fd,
    uint64_t offset, uint64_t length);
static flash_residency_t flash_test_by_reading(int fd, uint64_t offset,
    uint64_t length);
static flash_residency_t flash_test_by_steps(int fd, uint64_t offset,
    uint64_t length);
static uint64_t flash_file_system(int fd);


flash_residency_t
flash_test_name(const char *path, int *pin)
{
#ifdef SYS_openat2
    flash_open_how_t  how;

    memset(&how, 0, sizeof(how));
    how.flags = O_PATH|O_CLOEXEC;
    how.resolve = FLASH_RESOLVE_CACHED;

    *pin = (int) syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    if (*pin >= 0) {
        return FLASH_RESIDENT;
    }

    switch (errno) {

    /* Not in the cache; a rename or an automount is also a matter for the
     * backend. */
    case EAGAIN:
        return FLASH_COLD;

    /* No openat2 (before Linux 5.6), none with RESOLVE_CACHED (before 5.12),
     * a seccomp filter.  An O_PATH open has no such errors of its own. */
    case ENOSYS:
    case EINVAL:
    case EPERM:
        return FLASH_UNTESTABLE;

    default:
        return FLASH_RESIDENT;
    }
#else
    (void) path;
    *pin = -1;
    errno = ENOSYS;
    return FLASH_UNTESTABLE;
#endif
}


static int
flash_cachestat(int fd, uint64_t offset, uint64_t length,
    flash_cachestat_t *stat)
{
#ifdef SYS_cachestat
    flash_cachestat_range_t  range;

    range.offset = offset;
    range.length = length;

    return (int) syscall(SYS_cachestat, fd, &range, stat, 0);
#else
    (void) fd;
    (void) offset;
    (void) length;
    (void) stat;
    errno = ENOSYS;
    return -1;
#endif
}


flash_residency_t
flash_test_range(int fd, uint64_t offset, uint64_t length)
{
    return flash_test_by(flash_test_by_reading, fd, offset, length);
}


flash_residency_t
flash_test_loaded_range(int fd, uint64_t offset, uint64_t length)
{
    return flash_test_by(flash_test_by_steps, fd, offset, length);
}


static flash_residency_t
flash_test_by(flash_range_test_t otherwise, int fd, uint64_t offset,
    uint64_t length)
{
    int                supported;
    flash_cachestat_t  stat;

    /* An error here or later is one that the server's own read finds. */

    if (flash_clip(fd, offset, &length) == -1) {
        return FLASH_UNTESTABLE;
    }

    if (length == 0) {
        return FLASH_RESIDENT;
    }

    if (flash_cachestat(fd, offset, length, &stat) == -1) {
        return (errno == EPERM || errno == EACCES || errno == ENOSYS)
               ? otherwise(fd, offset, length) : FLASH_UNTESTABLE;
    }

    /* Only a read shows whether the file system supports RWF_NOWAIT.  This one
     * does no I/O, and fails with EAGAIN while a file on XFS is written. */

    supported = flash_read_byte(fd, FLASH_BEYOND) != -1 || errno == EAGAIN;

    if (!supported || stat.cached < flash_pages(offset, length)) {
        return flash_test_unread(fd, supported, &stat);
    }

    if (flash_is_read(fd, offset, length) != -1) {
        return FLASH_RESIDENT;
    }

    return errno == EAGAIN ? FLASH_COLD : FLASH_UNTESTABLE;
}


/* Shortens a range to the part that is in the file, 0 if there is none. */

static int
flash_clip(int fd, uint64_t offset, uint64_t *length)
{
    uint64_t     size;
    struct stat  st;

    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) || st.st_size < 0) {
        return -1;
    }

    size = (uint64_t) st.st_size;

    if (offset >= size) {
        *length = 0;

    } else if (*length > size - offset) {
        *length = size - offset;
    }

    return 0;
}


static uint64_t
flash_pages(uint64_t offset, uint64_t length)
{
    uint64_t  page;

    page = (uint64_t) sysconf(_SC_PAGESIZE);

    return (offset + length - 1) / page - offset / page + 1;
}


/*
 * Whether all pages of a range are read.  cachestat also counts pages whose
 * read is still under way; mincore(2) does not.  Neither counts as a use of the
 * pages, as a read would.  Returns -1 with EAGAIN if a page is not read.
 *
 * Mapping a file on NFS asks its server, so the caller has to find out first
 * that the file system supports RWF_NOWAIT.
 */

static int
flash_is_read(int fd, uint64_t offset, uint64_t length)
{
    int             all;
    char           *map;
    size_t          page, size, at, pages, i;
    uint64_t        first;
    unsigned char   there[FLASH_MINCORE_PAGES];

    page = (size_t) sysconf(_SC_PAGESIZE);
    first = offset - offset % page;
    size = (size_t) (offset + length - first);

    map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, (off_t) first);

    if (map == MAP_FAILED) {
        return flash_arrived(fd, offset, length);
    }

    all = 1;

    for (at = 0; at < size && all; at += pages * page) {
        pages = (size - at + page - 1) / page;

        if (pages > FLASH_MINCORE_PAGES) {
            pages = FLASH_MINCORE_PAGES;
        }

        if (mincore(map + at, pages * page, there) == -1) {
            (void) munmap(map, size);
            return flash_arrived(fd, offset, length);
        }

        for (i = 0; i < pages && all; i++) {
            all = there[i] & 1;
        }
    }

    (void) munmap(map, size);
    errno = EAGAIN;

    return all ? 1 : -1;
}


/*
 * The same where mincore is not allowed: one byte is read at the end of each
 * step and of the range.  The end of the range alone is not enough, because the
 * parts of a range can arrive in any order.  Returns 0 if the file has become
 * shorter.
 */

static int
flash_arrived(int fd, uint64_t offset, uint64_t length)
{
    ssize_t   n;
    uint64_t  last, end;

    last = offset + length - 1;

    do {
        end = offset | (FLASH_ARRIVED_STEP - 1);

        if (end > last) {
            end = last;
        }

        n = flash_read_byte(fd, end);

        if (n != 1) {
            return (int) n;
        }

        offset = end + 1;

    } while (end < last);

    return 1;
}


/* Reads one byte if this needs no waiting: 1, 0 at the end of the file, -1. */

static ssize_t
flash_read_byte(int fd, uint64_t offset)
{
    char          byte;
    ssize_t       n;
    struct iovec  iov;

    iov.iov_base = &byte;
    iov.iov_len = 1;

    do {
        n = preadv2(fd, &iov, 1, (off_t) offset, RWF_NOWAIT);
    } while (n == -1 && errno == EINTR);

    return n;
}


/*
 * Pages are missing by cachestat, or RWF_NOWAIT is not supported, as on NFS and
 * FUSE.  A page of tmpfs that is missing is a hole or, if the kernel counts it
 * as evicted, swapped out.  overlayfs keeps nothing under its own inode.
 */

static flash_residency_t
flash_test_unread(int fd, int supported, const flash_cachestat_t *stat)
{
    uint64_t  type;

    type = flash_file_system(fd);

    if (type == FLASH_TMPFS_MAGIC) {
        return stat->evicted > 0 ? FLASH_COLD : FLASH_RESIDENT;
    }

    if (!supported || type == FLASH_OVERLAYFS_MAGIC) {
        return FLASH_UNTESTABLE;
    }

    return FLASH_COLD;
}


/*
 * Reads the whole range if this needs no waiting.  On a miss the kernel starts
 * readahead, and this can wait for room in the device's queue: the price
 * where cachestat is refused.  A short read is a miss, as the range ends with
 * the file; if the file has become shorter, the next test sees it.
 */

static flash_residency_t
flash_test_by_reading(int fd, uint64_t offset, uint64_t length)
{
    int            parts;
    size_t         step, sum;
    ssize_t        n;
    unsigned char  scratch[FLASH_SCRATCH];
    struct iovec   iov[FLASH_SCRATCH_PARTS];

    while (length > 0) {
        sum = 0;

        for (parts = 0; parts < FLASH_SCRATCH_PARTS && sum < length; parts++) {
            step = length - sum < FLASH_SCRATCH ? (size_t) (length - sum)
                                                : FLASH_SCRATCH;
            iov[parts].iov_base = scratch;
            iov[parts].iov_len = step;
            sum += step;
        }

        do {
            n = preadv2(fd, iov, parts, (off_t) offset, RWF_NOWAIT);
        } while (n == -1 && errno == EINTR);

        if (n == -1 && errno != EAGAIN) {
            return FLASH_UNTESTABLE;
        }

        if (n == -1 || (size_t) n < sum) {
            return FLASH_COLD;
        }

        offset += sum;
        length -= sum;
    }

    return FLASH_RESIDENT;
}


static flash_residency_t
flash_test_by_steps(int fd, uint64_t offset, uint64_t length)
{
    if (flash_arrived(fd, offset, length) != -1) {
        return FLASH_RESIDENT;
    }

    return errno == EAGAIN ? FLASH_COLD : FLASH_UNTESTABLE;
}


static uint64_t
flash_file_system(int fd)
{
    struct statfs  fs;

    if (fstatfs(fd, &fs) == -1) {
        return 0;
    }

    return (uint64_t) fs.f_type & 0xffffffff;
}


void
flash_prepare(int fd)
{
    (void) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
}


int
flash_keep_access_time(int fd)
{
    int  flags;

    flags = fcntl(fd, F_GETFL);

    if (flags == -1) {
        return 0;
    }

    return (flags & O_NOATIME) || fcntl(fd, F_SETFL, flags | O_NOATIME) == 0;
}
