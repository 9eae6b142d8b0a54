/*
 * The tests for residency where the machine answers otherwise: another user,
 * tmpfs, overlayfs, a file system that was mounted just now, and a seccomp
 * filter.  Each is skipped where it cannot be made.
 */

#define _GNU_SOURCE

#include "check.h"
#include "flash_client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>


#ifndef SYS_openat2
#define SYS_openat2    437
#endif
#ifndef SYS_cachestat
#define SYS_cachestat  451
#endif

#define FILE_BYTES     300000


static void as_other_user(void);
static void on_tmpfs(void);
static void on_overlayfs(void);
static void on_fresh_mount(void);
static void without_uses(void);
static void without_cachestat(void);
static void without_mincore(void);
static void while_written(void);
static void without_openat2(void);
static void before_openat2(void);
static void test_by_reading(int fd);
static int becomes_cold(int fd, off_t from,
    flash_residency_t (*test)(int fd, uint64_t offset, uint64_t length));
static long bytes_read(void);
static void test_tmpfs_as(int other_user);
static int cachestat_errno(int fd);
static int private_mounts(void);
static int open_file(void);
static void read_all(int fd);
static int refuse(unsigned number, unsigned error);
static int becomes_other_user(void);


void
test_machine(void)
{
    in_child(as_other_user);
    in_child(on_tmpfs);
    in_child(on_overlayfs);
    in_child(on_fresh_mount);
    in_child(without_uses);
    in_child(without_cachestat);
    in_child(without_mincore);
    in_child(while_written);
    in_child(without_openat2);
    in_child(before_openat2);
    printf("machine: ok\n");
}


/* The kernel answers cachestat to the owner, a writer and CAP_FOWNER only. */

static void
as_other_user(void)
{
    int   fd;

    fd = open_file();

    if (!becomes_other_user()) {
        return;
    }

    if (cachestat_errno(fd) != EPERM && cachestat_errno(fd) != ENOSYS) {
        skip("no right that cachestat asks for is missing here");
        return;
    }

    test_by_reading(fd);
}


/* The kernel counts each read as a use of its page, so a test reads nothing. */

static void
without_uses(void)
{
    int   fd, turn;
    long  before;

    fd = open_file();
    read_all(fd);

    if (cachestat_errno(fd) != 0
        || flash_test_range(fd, 0, FILE_BYTES) == FLASH_UNTESTABLE)
    {
        skip("no residency is reported by this file system here");
        return;
    }

    before = bytes_read();

    if (before == -1) {
        skip("no count of read bytes here");
        return;
    }

    for (turn = 0; turn < 10000; turn++) {
        (void) flash_test_range(fd, 0, 1);
    }

    CHECK(bytes_read() - before < 10000);
}


/* No cachestat, by an old kernel or a container's filter. */

static void
without_cachestat(void)
{
    int   fd;
    long  before;

    fd = open_file();

    if (!refuse(SYS_cachestat, ENOSYS)) {
        return;
    }

    CHECK_EQ(cachestat_errno(fd), ENOSYS);
    test_by_reading(fd);

    /* A test of a loaded range reads only a byte of each 64 KB. */

    read_all(fd);
    before = bytes_read();

    if (before == -1) {
        skip("no count of read bytes here");
        return;
    }

    if (flash_test_loaded_range(fd, 0, FILE_BYTES) == FLASH_RESIDENT) {
        CHECK(bytes_read() - before < 4096);
    }
}


/* By all reads of this process so far (/proc/PID/io, proc_pid_io(5)). */

static long
bytes_read(void)
{
    int   fields;
    long  bytes;
    FILE  *io;

    io = fopen("/proc/self/io", "re");
    if (io == NULL) {
        return -1;
    }

    fields = fscanf(io, "rchar: %ld", &bytes);
    CHECK(fclose(io) == 0);

    return fields == 1 ? bytes : -1;
}


static void
test_by_reading(int fd)
{
    flash_residency_t  result;

    read_all(fd);
    result = flash_test_range(fd, 0, FILE_BYTES);

    if (result == FLASH_UNTESTABLE) {
        skip("no RWF_NOWAIT on this file system here");
        return;
    }

    CHECK_EQ(result, FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, 1, UINT64_MAX), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, FILE_BYTES, 1), FLASH_RESIDENT);
    CHECK_EQ(flash_test_range(fd, 299999, 1), FLASH_RESIDENT);
    CHECK_EQ(flash_test_loaded_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    CHECK_EQ(flash_test_loaded_range(fd, 1, UINT64_MAX), FLASH_RESIDENT);
    CHECK_EQ(flash_test_loaded_range(fd, FILE_BYTES, 1), FLASH_RESIDENT);

    /* Also behind the first call's part.  Up to the end, as the kernel drops
     * no part of a large folio. */

    if (!becomes_cold(fd, 0, flash_test_range)
        || !becomes_cold(fd, 262144, flash_test_range)
        || !becomes_cold(fd, 0, flash_test_loaded_range))
    {
        skip("no disk that is slower than a test by reading here");
    }
}


/*
 * Whether a file is found cold after its end was dropped from memory.  The
 * test itself starts a read, which a fast disk ends before the test sees it.
 */

static int
becomes_cold(int fd, off_t from,
    flash_residency_t (*test)(int fd, uint64_t offset, uint64_t length))
{
    int                turn;
    flash_residency_t  result;

    result = FLASH_RESIDENT;

    for (turn = 0; turn < 200 && result == FLASH_RESIDENT; turn++) {
        CHECK(posix_fadvise(fd, from, 0, POSIX_FADV_DONTNEED) == 0);
        result = test(fd, 0, FILE_BYTES);
        read_all(fd);
    }

    CHECK(result != FLASH_UNTESTABLE);

    return result == FLASH_COLD;
}


/* A container's filter: the test falls back to a byte of each 64 KB. */

static void
without_mincore(void)
{
    int   fd;

    fd = open_file();
    read_all(fd);

    if (flash_test_range(fd, 0, FILE_BYTES) == FLASH_UNTESTABLE) {
        skip("no residency is reported by this file system here");

    } else if (refuse(SYS_mincore, EPERM)) {
        CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    }
}


/* As on XFS: no read without waiting while the file is written. */

static void
while_written(void)
{
    int  fd;

    fd = open_file();
    read_all(fd);

    if (cachestat_errno(fd) != 0
        || flash_test_range(fd, 0, FILE_BYTES) == FLASH_UNTESTABLE)
    {
        skip("no residency is reported by this file system here");

    } else if (refuse(SYS_preadv2, EAGAIN)) {
        CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    }
}


static void
without_openat2(void)
{
    int  pin;

    if (refuse(SYS_openat2, EPERM)) {
        CHECK_EQ(flash_test_name("/", &pin), FLASH_UNTESTABLE);
        CHECK_EQ(pin, -1);
    }
}


/* Linux before 5.6. */

static void
before_openat2(void)
{
    int  pin;

    if (refuse(SYS_openat2, ENOSYS)) {
        CHECK_EQ(flash_test_name("/", &pin), FLASH_UNTESTABLE);
        CHECK_EQ(pin, -1);
    }
}


/* tmpfs has no disk; its holes are no cold pages. */

static void
on_tmpfs(void)
{
    test_tmpfs_as(0);

    if (becomes_other_user()) {
        test_tmpfs_as(1);
    }
}


static void
test_tmpfs_as(int other_user)
{
    int          fd;
    char         path[64];
    struct stat  st;

    if (stat("/dev/shm", &st) == -1) {
        skip("no /dev/shm here");
        return;
    }

    (void) snprintf(path, sizeof(path), "/dev/shm/flash-client-%d",
                    (int) getpid());
    write_file(path, FILE_BYTES);
    fd = open(path, O_RDWR|O_CLOEXEC);
    CHECK(fd != -1);
    CHECK(unlink(path) == 0);

    if (cachestat_errno(fd) != 0) {
        skip("no cachestat here");
        return;
    }

    /* The owner may ask, whoever it is. */

    CHECK(!other_user || getuid() != 0);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    CHECK(ftruncate(fd, 0) == 0 && ftruncate(fd, FILE_BYTES) == 0);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    CHECK(close(fd) == 0);
}


/* overlayfs keeps its pages under other inodes: nothing can be said. */

static void
on_overlayfs(void)
{
    int   fd, pin;
    char  room[PATH_ROOM], options[4 * PATH_ROOM];

    CHECK(mkdir(scratch(room, "overlay"), 0755) == 0 || errno == EEXIST);

    /* A file system of its own, as overlayfs is not laid over overlayfs. */

    if (!private_mounts()
        || mount("flash", room, "tmpfs", 0, "size=4m") == -1)
    {
        skip("no mounts here");
        return;
    }

    CHECK(chdir(room) == 0);
    CHECK(mkdir("lower", 0755) == 0 && mkdir("upper", 0755) == 0
          && mkdir("work", 0755) == 0 && mkdir("all", 0755) == 0);
    write_file("lower/file", FILE_BYTES);
    (void) snprintf(options, sizeof(options),
                    "lowerdir=lower,upperdir=upper,workdir=work");

    if (mount("overlay", "all", "overlay", 0, options) == -1) {
        skip("no overlayfs here");
        return;
    }

    fd = open_prepared("all/file");
    read_all(fd);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_UNTESTABLE);
    CHECK_EQ(flash_test_range(fd, FILE_BYTES, 1), FLASH_RESIDENT);

    CHECK_EQ(flash_test_name("all/file", &pin), FLASH_RESIDENT);
    CHECK(pin != -1);
}


/* A file system that was mounted just now has no names in memory. */

static void
on_fresh_mount(void)
{
    int   fd, pin;
    char  tree[PATH_ROOM], image[PATH_ROOM], at[PATH_ROOM];
    char  file[PATH_ROOM + 16], command[4 * PATH_ROOM];

    CHECK(mkdir(scratch(tree, "tree"), 0755) == 0 || errno == EEXIST);
    CHECK(mkdir(scratch(at, "at"), 0755) == 0 || errno == EEXIST);
    (void) snprintf(file, sizeof(file), "%s/file", tree);
    write_file(file, FILE_BYTES);

    (void) snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin; "
        "mke2fs -q -F -t ext4 -d %s %s 8m >/dev/null 2>&1", tree,
        scratch(image, "image"));

    if (!private_mounts() || system(command) != 0) {
        skip("no mounts or no mke2fs here");
        return;
    }

    (void) snprintf(command, sizeof(command),
                    "mount -o loop,ro %s %s 2>/dev/null", image, at);

    if (system(command) != 0) {
        skip("no loop devices here");
        return;
    }

    (void) snprintf(file, sizeof(file), "%s/file", at);
    CHECK_EQ(flash_test_name(file, &pin), FLASH_COLD);
    CHECK_EQ(pin, -1);

    fd = open_prepared(file);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_COLD);
    CHECK_EQ(flash_test_name(file, &pin), FLASH_RESIDENT);
    CHECK(pin != -1);

    read_all(fd);
    CHECK_EQ(flash_test_range(fd, 0, FILE_BYTES), FLASH_RESIDENT);
    CHECK(close(pin) == 0 && close(fd) == 0);
    CHECK(umount(at) == 0);
}


static int
becomes_other_user(void)
{
    if (geteuid() != 0 || setgid(65534) == -1 || setuid(65534) == -1) {
        skip("no root here");
        return 0;
    }

    return 1;
}


static int
private_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0
           && mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == 0;
}


static int
cachestat_errno(int fd)
{
    uint64_t  range[2] = { 0, 0 };
    uint64_t  stat[5];

    return syscall(SYS_cachestat, fd, range, stat, 0) == 0 ? 0 : errno;
}


/* A file that goes with its last descriptor. */

static int
open_file(void)
{
    int   fd;
    char  room[PATH_ROOM];

    write_file(scratch(room, "file"), FILE_BYTES);
    fd = open_prepared(room);
    CHECK(unlink(room) == 0);

    return fd;
}


static void
read_all(int fd)
{
    off_t    offset;
    ssize_t  n;

    static char  bytes[65536];

    for (offset = 0; (n = pread(fd, bytes, sizeof(bytes), offset)) > 0; ) {
        offset += n;
    }

    CHECK_EQ(offset, FILE_BYTES);
}


static int
refuse(unsigned number, unsigned error)
{
    struct sock_filter  program[] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ERRNO|error),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW)
    };

    struct sock_fprog   filter = { 4, program };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == -1)
    {
        skip("no seccomp filters here");
        return 0;
    }

    return 1;
}
