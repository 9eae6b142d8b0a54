/*
 * Client of `flash backend`: messages and the connection.  The callers and the
 * rules are in flash_client.h, the messages in docs/backend-protocol.md.
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
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>


/* Messages. */

#define FLASH_HELLO            1
#define FLASH_WARM_NAME        2
#define FLASH_WARM_RANGE       3
#define FLASH_CLOSE            4
#define FLASH_CANCEL           5

#define FLASH_HEADER           8
#define FLASH_HELLO_LENGTH     24      /* without the name */
#define FLASH_NAME_LENGTH      16      /* without the path */
#define FLASH_RANGE_LENGTH     40
#define FLASH_ERRNO_MAX        4095    /* the kernel's MAX_ERRNO */

/* One byte more than the longest reply, so that a longer one is noticed. */
#define FLASH_REPLY_BUFFER     17

#define FLASH_SEND_BUFFER      (1024 * 1024)


static unsigned char *
flash_put32(unsigned char *p, uint32_t value)
{
    p[0] = (unsigned char) (value & 0xff);
    p[1] = (unsigned char) ((value >> 8) & 0xff);
    p[2] = (unsigned char) ((value >> 16) & 0xff);
    p[3] = (unsigned char) ((value >> 24) & 0xff);

    return p + 4;
}


static unsigned char *
flash_put64(unsigned char *p, uint64_t value)
{
    p = flash_put32(p, (uint32_t) (value & 0xffffffff));

    return flash_put32(p, (uint32_t) (value >> 32));
}


static uint32_t
flash_get32(const unsigned char *p)
{
    return (uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16
           | (uint32_t) p[3] << 24;
}


static unsigned char *
flash_put_header(unsigned char *p, unsigned char type, uint32_t id)
{
    /* three bytes of zero follow the type */

    return flash_put32(flash_put32(p, type), id);
}


size_t
flash_encode_hello(const flash_hello_t *hello,
    unsigned char bytes[FLASH_MESSAGE_MAX])
{
    size_t          i, length;
    unsigned char  *p;

    if (hello->name == NULL) {
        return 0;
    }

    length = strnlen(hello->name, FLASH_NAME_MAX + 1);

    if (length == 0 || length > FLASH_NAME_MAX) {
        return 0;
    }

    for (i = 0; i < length; i++) {
        if (hello->name[i] < 0x20 || hello->name[i] > 0x7e) {
            return 0;
        }
    }

    p = flash_put_header(bytes, FLASH_HELLO, 0);
    p = flash_put32(p, FLASH_VERSION);
    p = flash_put32(p, hello->waiters_max);
    p = flash_put64(p, hello->group);
    memcpy(p, hello->name, length);

    return FLASH_HELLO_LENGTH + length;
}


size_t
flash_encode(const flash_request_t *request,
    unsigned char bytes[FLASH_MESSAGE_MAX])
{
    unsigned char  *p;

    if (request->path != NULL) {

        if (request->path_len == 0 || request->path_len > FLASH_PATH_MAX
            || request->path[0] != '/'
            || memchr(request->path, '\0', request->path_len) != NULL)
        {
            return 0;
        }

        p = flash_put_header(bytes, FLASH_WARM_NAME, request->id);
        p = flash_put32(p, request->deadline_ms);
        p = flash_put32(p, 0);
        memcpy(p, request->path, request->path_len);

        return FLASH_NAME_LENGTH + request->path_len;
    }

    if (request->length == 0 || request->length > FLASH_RANGE_MAX) {
        return 0;
    }

    p = flash_put_header(bytes, FLASH_WARM_RANGE, request->id);
    p = flash_put32(p, request->deadline_ms);
    p = flash_put32(p, 0);
    p = flash_put64(p, request->offset);
    p = flash_put64(p, request->length);
    (void) flash_put64(p, request->remaining);

    return FLASH_RANGE_LENGTH;
}


int
flash_decode(const unsigned char *bytes, size_t length, flash_reply_t *reply)
{
    uint32_t             type;
    static const size_t  lengths[] = {
        FLASH_HEADER + 8,      /* FLASH_HELLO_REPLY */
        FLASH_HEADER,          /* FLASH_READY */
        FLASH_HEADER + 4,      /* FLASH_ERRNO */
        FLASH_HEADER + 4       /* FLASH_BUSY */
    };

    if (length < FLASH_HEADER) {
        goto invalid;
    }

    type = flash_get32(bytes);

    if (type < FLASH_HELLO_REPLY || type > FLASH_BUSY
        || length != lengths[type - FLASH_HELLO_REPLY])
    {
        goto invalid;
    }

    reply->kind = (flash_kind_t) type;
    reply->id = flash_get32(bytes + 4);
    reply->value = (length > FLASH_HEADER) ? flash_get32(bytes + 8) : 0;
    reply->status = (length > FLASH_HEADER + 4) ? flash_get32(bytes + 12) : 0;

    if (reply->kind == FLASH_ERRNO
        && (reply->value == 0 || reply->value > FLASH_ERRNO_MAX))
    {
        goto invalid;
    }

    if (reply->kind == FLASH_HELLO_REPLY) {

        /* Callers look at the status only, so a welcome in another version
         * is refused here. */

        if (reply->id != 0 || reply->status > FLASH_NO_ROOM
            || (reply->status == FLASH_WELCOME
                && reply->value != FLASH_VERSION))
        {
            goto invalid;
        }
    }

    return 0;

invalid:

    errno = EPROTO;
    return -1;
}


/* Sends one packet, with a descriptor unless fd is -1. */

static int
flash_send_bytes(int connection, unsigned char *bytes, size_t length, int fd)
{
    ssize_t          n;
    struct iovec     iov;
    struct msghdr    message;
    struct cmsghdr  *cmsg;

    union {
        struct cmsghdr  header;
        char            space[CMSG_SPACE(sizeof(int))];
    } control;

    iov.iov_base = bytes;
    iov.iov_len = length;

    memset(&message, 0, sizeof(message));
    message.msg_iov = &iov;
    message.msg_iovlen = 1;

    if (fd != -1) {
        memset(&control, 0, sizeof(control));
        message.msg_control = control.space;
        message.msg_controllen = sizeof(control.space);

        cmsg = &control.header;
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    }

    do {
        n = sendmsg(connection, &message, MSG_DONTWAIT|MSG_NOSIGNAL);
    } while (n == -1 && errno == EINTR);

    if (n != -1) {
        return 0;
    }

    /*
     * The kernel limits the descriptors that a user has on their way
     * (ETOOMANYREFS) and its own memory.  Nothing was sent and the connection
     * is sound: the backend lags, as with a full socket.
     */

    if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM) {
        errno = EAGAIN;
    }

    return -1;
}


int
flash_connect(const char *socket_path, const flash_hello_t *hello)
{
    int                 buffer_bytes, connection, error, root;
    size_t              length, path_len;
    unsigned char       bytes[FLASH_MESSAGE_MAX];
    struct sockaddr_un  address;

    path_len = strlen(socket_path);
    length = flash_encode_hello(hello, bytes);

    if (path_len == 0 || length == 0) {
        errno = EINVAL;
        return -1;
    }

    if (path_len >= sizeof(address.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }

    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, socket_path, path_len);

    root = open("/", O_PATH|O_DIRECTORY|O_CLOEXEC);
    if (root == -1) {
        return -1;
    }

    connection = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);

    if (connection == -1) {
        goto failed;
    }

    /* Room for a burst of requests.  The kernel cuts the size down to
     * net.core.wmem_max; a smaller buffer is full earlier, nothing worse. */

    buffer_bytes = FLASH_SEND_BUFFER;

    (void) setsockopt(connection, SOL_SOCKET, SO_SNDBUF, &buffer_bytes,
                      (socklen_t) sizeof(buffer_bytes));

    /* A full backlog answers EAGAIN instead of waiting, as the socket is
     * non-blocking. */

    if (connect(connection, (const struct sockaddr *) &address,
                (socklen_t) sizeof(address))
        == -1)
    {
        goto failed;
    }

    if (flash_send_bytes(connection, bytes, length, root) == -1) {
        goto failed;
    }

    (void) close(root);

    return connection;

failed:

    error = errno;

    if (connection != -1) {
        (void) close(connection);
    }

    (void) close(root);

    errno = error;
    return -1;
}


int
flash_send(int connection, const flash_request_t *request)
{
    size_t         length;
    unsigned char  bytes[FLASH_MESSAGE_MAX];

    length = flash_encode(request, bytes);

    if (length == 0 || (request->path == NULL && request->fd < 0)) {
        errno = EINVAL;
        return -1;
    }

    return flash_send_bytes(connection, bytes, length,
                            request->path == NULL ? request->fd : -1);
}


int
flash_send_cancel(int connection, uint32_t id)
{
    unsigned char  bytes[FLASH_HEADER];

    (void) flash_put_header(bytes, FLASH_CANCEL, id);

    return flash_send_bytes(connection, bytes, FLASH_HEADER, -1);
}


int
flash_send_close(int connection, int fd)
{
    unsigned char  bytes[FLASH_HEADER];

    if (fd < 0) {
        errno = EINVAL;
        return -1;
    }

    (void) flash_put_header(bytes, FLASH_CLOSE, 0);

    return flash_send_bytes(connection, bytes, FLASH_HEADER, fd);
}


int
flash_receive(int connection, flash_reply_t *reply)
{
    ssize_t        n;
    struct iovec   iov;
    unsigned char  bytes[FLASH_REPLY_BUFFER];
    struct msghdr  message;

    iov.iov_base = bytes;
    iov.iov_len = sizeof(bytes);

    memset(&message, 0, sizeof(message));
    message.msg_iov = &iov;
    message.msg_iovlen = 1;

    do {
        n = recvmsg(connection, &message, MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n == -1) {
        return (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
    }

    /* Replies carry no descriptors.  There is no room for any, so the kernel
     * has closed them and says so. */

    if (message.msg_flags & (MSG_TRUNC|MSG_CTRUNC)) {
        errno = EPROTO;
        return -1;
    }

    if (n == 0) {
        errno = 0;
        return -1;
    }

    return flash_decode(bytes, (size_t) n, reply) == -1 ? -1 : 1;
}


static int64_t
flash_now_ms(void)
{
    struct timespec  now;

    (void) clock_gettime(CLOCK_MONOTONIC, &now);

    return (int64_t) now.tv_sec * 1000 + (int64_t) now.tv_nsec / 1000000;
}


int
flash_ask(int connection, const flash_request_t *request, int wait_ms,
    flash_reply_t *reply)
{
    int            result;
    int64_t        deadline, left;
    struct pollfd  event;

    deadline = flash_now_ms() + (wait_ms > 0 ? wait_ms : 0);

    if (flash_send(connection, request) == -1) {

        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            return -1;
        }

        reply->kind = FLASH_BUSY;
        reply->id = request->id;
        reply->value = 0;
        reply->status = 0;

        return 1;
    }

    event.fd = connection;
    event.events = POLLIN;

    for ( ;; ) {
        result = flash_receive(connection, reply);

        if (result == -1) {
            return -1;
        }

        if (result == 1 && reply->kind != FLASH_HELLO_REPLY
            && reply->id == request->id)
        {
            return 1;
        }

        /* The time is looked at after each dropped reply too: a backend that
         * sends nothing else cannot keep the caller. */

        left = deadline - flash_now_ms();

        if (left <= 0) {
            return 0;
        }

        if (result == 0 && poll(&event, 1, (int) left) == -1
            && errno != EINTR)
        {
            return -1;
        }
    }
}
