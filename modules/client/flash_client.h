/*
 * Client of `flash backend`: the messages of docs/backend-protocol.md and the
 * tests whether a name or a range of a file is in memory.
 *
 * Used by modules/nginx (one connection for each worker, in its event loop)
 * and modules/apache (a pool of connections, each used by one thread at a
 * time).  Nothing here allocates memory, keeps global state, logs or blocks,
 * except flash_ask(), which waits at most for the time it is given.
 *
 * Functions that return int return 0 or a positive value on success and -1
 * with errno on failure, unless they say otherwise.
 */

#ifndef FLASH_CLIENT_H
#define FLASH_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FLASH_VERSION         1
#define FLASH_PATH_MAX        4095
#define FLASH_NAME_MAX        32
#define FLASH_RANGE_MAX       (1024 * 1024)
#define FLASH_MESSAGE_MAX     (16 + FLASH_PATH_MAX)

/* Where a server's default connects to. */
#define FLASH_SOCKET          "/run/flash/backend.sock"


/* Who the client is: sent once on each connection. */

typedef struct {
    const char  *name;         /* "nginx", "apache"; 1 to FLASH_NAME_MAX bytes */
    uint64_t     group;        /* the same for all processes of one server */
    uint32_t     waiters_max;  /* of the whole group; 0: no limit */
} flash_hello_t;


/* A request.  The deadline is relative, 0 takes the backend's. */

typedef struct {
    uint32_t     id;
    uint32_t     deadline_ms;
    /* WARM_NAME: absolute path, length without a final NUL */
    const char  *path;
    size_t       path_len;
    /* WARM_RANGE, if path is NULL */
    int          fd;
    uint64_t     offset;
    uint64_t     length;       /* 1 to FLASH_RANGE_MAX */
    uint64_t     remaining;    /* of the answer, this range included */
} flash_request_t;


typedef enum {
    FLASH_HELLO_REPLY = 129,
    FLASH_READY       = 130,
    FLASH_ERRNO       = 131,
    FLASH_BUSY        = 132
} flash_kind_t;

typedef enum {
    FLASH_WELCOME     = 0,
    FLASH_BAD_VERSION = 1,
    FLASH_BAD_USER    = 2,
    FLASH_NO_ROOM     = 3
} flash_status_t;

typedef struct {
    flash_kind_t  kind;
    uint32_t      id;
    uint32_t      value;   /* version | 0 | error number | retry_after_ms */
    uint32_t      status;  /* FLASH_HELLO_REPLY only: a flash_status_t */
} flash_reply_t;


/*
 * Connects and sends HELLO with the process's root directory.  Returns a
 * non-blocking, close-on-exec descriptor.  Requests must wait for a
 * FLASH_HELLO_REPLY with FLASH_WELCOME.
 */
int flash_connect(const char *socket_path, const flash_hello_t *hello);

/*
 * Sends a message.  EAGAIN: the socket is full, treat it as FLASH_BUSY.
 * EINVAL: a field is out of its bounds, nothing was sent.  Any other error
 * ends the connection.
 */
int flash_send(int connection, const flash_request_t *request);
int flash_send_cancel(int connection, uint32_t id);
int flash_send_close(int connection, int fd);

/*
 * Receives one reply.  Returns 1 with a reply, 0 if there is none now, -1 if
 * the connection has ended (errno 0) or failed, EPROTO if the message is
 * none of the protocol.
 */
int flash_receive(int connection, flash_reply_t *reply);

/* Decodes a reply.  Returns 0, or -1 with EPROTO.  Reads only `length` bytes. */
int flash_decode(const unsigned char *bytes, size_t length,
    flash_reply_t *reply);

/* Encodes; returns the length, or 0 if a field is out of its bounds.  For
 * tests and for flash_send(). */
size_t flash_encode(const flash_request_t *request,
    unsigned char bytes[FLASH_MESSAGE_MAX]);
size_t flash_encode_hello(const flash_hello_t *hello,
    unsigned char bytes[FLASH_MESSAGE_MAX]);

/*
 * Sends the request and waits for its reply, at most for wait_ms; replies to
 * other requests are dropped.  For clients with a connection for each
 * thread.  Returns 1 with the reply, 0 if the time has passed (close the
 * connection then), -1 as flash_receive().
 */
int flash_ask(int connection, const flash_request_t *request, int wait_ms,
    flash_reply_t *reply);


/* Whether something can be used without waiting for the disk. */

typedef enum {
    FLASH_RESIDENT,   /* yes */
    FLASH_COLD,       /* no, or only perhaps */
    FLASH_UNTESTABLE  /* the file system cannot tell (overlayfs, FUSE, NFS) */
} flash_residency_t;

/*
 * Looks `path` up in the kernel's name cache only (openat2, RESOLVE_CACHED).
 * FLASH_RESIDENT: *pin is an O_PATH descriptor, which keeps the inode and its
 * names in memory while it is open; or -1, and errno is the error that the
 * server's own open will find without waiting (ENOENT, EACCES, ...).
 * FLASH_COLD: ask the backend, then test once more at most: a path through a
 * file, or through a directory without the right to search it, stays
 * FLASH_COLD.
 * FLASH_UNTESTABLE: the kernel or a seccomp filter has no openat2.
 */
flash_residency_t flash_test_name(const char *path, int *pin);

/*
 * Tests a range of a file that is open for reading: cachestat(2) where it is
 * allowed, else preadv2(RWF_NOWAIT) into scratch memory.  A range beyond the
 * end of the file is resident as far as the file goes.
 */
flash_residency_t flash_test_range(int fd, uint64_t offset, uint64_t length);

/*
 * Tests a range that the backend has just loaded.  Where cachestat is not
 * allowed, it reads only a byte of each 64 KB.  The kernel counts a read as a
 * use of the page, and the server's own read is the second use: if the test
 * read every page, files that were requested once would evict popular ones.
 */
flash_residency_t flash_test_loaded_range(int fd, uint64_t offset,
    uint64_t length);

/*
 * Prepares a file that is about to be tested or sent: POSIX_FADV_RANDOM, so that
 * no readahead mark starts I/O in the server's process, and a test by reading
 * that misses starts a read of the whole range.
 */
void flash_prepare(int fd);

/*
 * Makes reads of this open file leave its access time alone (O_NOATIME): an
 * update can begin a journal transaction, which waits for the disk, also in
 * flash_test_range().  Returns 1, or 0 if it is not allowed: to the file's
 * owner and CAP_FOWNER only.
 */
int flash_keep_access_time(int fd);


#endif /* FLASH_CLIENT_H */
