/*
 * The client's sends and receives over socket pairs and a listener of the
 * test's own: bytes, descriptors, full sockets, and packets that no backend
 * sends.
 */

#define _GNU_SOURCE

#include "check.h"
#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>


/* A received packet; fd is -1 if none came with it. */

typedef struct {
    unsigned char  bytes[FLASH_MESSAGE_MAX];
    size_t         length;
    int            fd;
} packet_t;


static void test_descriptors(void);
static void test_hello_sent(void);
static void test_connect_errors(void);
static void test_full_socket(void);
static void test_strange_packets(void);
static void test_other_replies(void);
static void receive_packet(int connection, packet_t *packet);
static void send_with_descriptor(int connection, const void *bytes,
    size_t length, int fd);
static void pair(int ends[2]);
static int listen_at(const char *path, int backlog);
static int same_file(int one, int other);


void
test_wire(void)
{
    test_descriptors();
    test_hello_sent();
    test_connect_errors();
    test_full_socket();
    test_strange_packets();
    test_other_replies();
    printf("wire: ok\n");
}


/* WARM_NAME and CANCEL go alone, WARM_RANGE and CLOSE with the file. */

static void
test_descriptors(void)
{
    int              ends[2], file;
    packet_t         packet;
    flash_request_t  request;

    pair(ends);
    file = open("/proc/self/exe", O_RDONLY|O_CLOEXEC);
    CHECK(file != -1);

    memset(&request, 0, sizeof(request));
    request.id = 7;
    request.path = "/a";
    request.path_len = 2;
    request.fd = file;
    CHECK_EQ(flash_send(ends[0], &request), 0);
    receive_packet(ends[1], &packet);
    CHECK_EQ(packet.length, 18);
    CHECK_EQ(packet.fd, -1);

    request.path = NULL;
    request.length = 1;
    CHECK_EQ(flash_send(ends[0], &request), 0);
    receive_packet(ends[1], &packet);
    CHECK_EQ(packet.length, 40);
    CHECK(same_file(packet.fd, file));
    CHECK(close(packet.fd) == 0);

    CHECK_EQ(flash_send_close(ends[0], file), 0);
    receive_packet(ends[1], &packet);
    CHECK(packet.length == 8
          && memcmp(packet.bytes, "\4\0\0\0\0\0\0\0", 8) == 0);
    CHECK(same_file(packet.fd, file));
    CHECK(close(packet.fd) == 0);

    CHECK_EQ(flash_send_cancel(ends[0], 2), 0);
    receive_packet(ends[1], &packet);
    CHECK(packet.length == 8
          && memcmp(packet.bytes, "\5\0\0\0\2\0\0\0", 8) == 0);
    CHECK_EQ(packet.fd, -1);

    /* No descriptor: nothing is sent. */

    errno = 0;
    CHECK_EQ(flash_send_close(ends[0], -1), -1);
    CHECK_EQ(errno, EINVAL);
    request.fd = -1;
    CHECK_EQ(flash_send(ends[0], &request), -1);
    CHECK_EQ(errno, EINVAL);
    request.fd = file;
    request.length = 0;
    CHECK_EQ(flash_send(ends[0], &request), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(recv(ends[1], packet.bytes, 1, MSG_DONTWAIT), -1);
    CHECK_EQ(errno, EAGAIN);

    /* A closed connection is an error and no signal. */

    CHECK(close(ends[1]) == 0);
    CHECK_EQ(flash_send_cancel(ends[0], 2), -1);
    CHECK_EQ(errno, EPIPE);

    CHECK(close(ends[0]) == 0 && close(file) == 0);
}


static void
test_hello_sent(void)
{
    int            accepted, connection, listener, root;
    char           room[PATH_ROOM];
    packet_t       packet;
    flash_hello_t  hello = { "apache", 1234605616436508552, 75 };
    unsigned char  expected[FLASH_MESSAGE_MAX];

    listener = listen_at(scratch(room, "hello.sock"), 8);
    connection = flash_connect(room, &hello);
    CHECK(connection != -1);
    CHECK(fcntl(connection, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(connection, F_GETFL) & O_NONBLOCK);

    accepted = accept(listener, NULL, NULL);
    CHECK(accepted != -1);
    receive_packet(accepted, &packet);
    CHECK_EQ(packet.length, flash_encode_hello(&hello, expected));
    CHECK(memcmp(packet.bytes, expected, packet.length) == 0);

    root = open("/", O_PATH|O_CLOEXEC);
    CHECK(root != -1 && same_file(packet.fd, root));
    CHECK(close(root) == 0 && close(packet.fd) == 0 && close(accepted) == 0);
    CHECK(close(connection) == 0 && close(listener) == 0);
    CHECK(unlink(room) == 0);
}


static void
test_connect_errors(void)
{
    int            connections[64], count, listener;
    char           room[PATH_ROOM], path[200];
    flash_hello_t  hello = { "test", 1, 0 };

    CHECK_EQ(flash_connect(scratch(room, "none.sock"), &hello), -1);
    CHECK_EQ(errno, ENOENT);

    memset(path, 'a', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    CHECK_EQ(flash_connect(path, &hello), -1);
    CHECK_EQ(errno, ENAMETOOLONG);
    CHECK_EQ(flash_connect("", &hello), -1);
    CHECK_EQ(errno, EINVAL);

    /* The backlog is full: the call does not wait. */

    listener = listen_at(scratch(room, "full.sock"), 0);

    for (count = 0; count < 64; count++) {
        connections[count] = flash_connect(room, &hello);

        if (connections[count] == -1) {
            CHECK_EQ(errno, EAGAIN);
            break;
        }
    }

    CHECK(count > 0 && count < 64);

    while (count > 0) {
        CHECK(close(connections[--count]) == 0);
    }

    hello.name = "";
    CHECK_EQ(flash_connect(room, &hello), -1);
    CHECK_EQ(errno, EINVAL);

    /* Nobody listens there any more. */

    hello.name = "test";
    CHECK(close(listener) == 0);
    CHECK_EQ(flash_connect(room, &hello), -1);
    CHECK_EQ(errno, ECONNREFUSED);
    CHECK(unlink(room) == 0);
}


/* The backend does not read: EAGAIN from a send, BUSY from flash_ask(). */

static void
test_full_socket(void)
{
    int              ends[2], sent;
    flash_reply_t    reply;
    flash_request_t  request;

    pair(ends);
    memset(&request, 0, sizeof(request));
    request.path = "/";
    request.path_len = 1;

    for (sent = 0; sent < 100000; sent++) {
        request.id = (uint32_t) sent;

        if (flash_send(ends[0], &request) == -1) {
            CHECK_EQ(errno, EAGAIN);
            break;
        }
    }

    CHECK(sent > 0 && sent < 100000);

    request.id = 99;
    request.fd = ends[1];
    CHECK_EQ(flash_ask(ends[0], &request, 60000, &reply), 1);
    CHECK_EQ(reply.kind, FLASH_BUSY);
    CHECK_EQ(reply.id, 99);
    CHECK_EQ(reply.value, 0);

    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}


static void
test_strange_packets(void)
{
    int            ends[2];
    char           large[64];
    size_t         before;
    flash_reply_t  reply;

    static const unsigned char  ready[] = { 130, 0, 0, 0, 9, 0, 0, 0 };

    pair(ends);
    CHECK_EQ(flash_receive(ends[0], &reply), 0);

    CHECK(send(ends[1], ready, sizeof(ready), 0) == sizeof(ready));
    CHECK_EQ(flash_receive(ends[0], &reply), 1);
    CHECK(reply.kind == FLASH_READY && reply.id == 9);

    /* Too long for any reply, also if its beginning is one. */

    memset(large, 0, sizeof(large));
    memcpy(large, ready, sizeof(ready));
    CHECK(send(ends[1], large, sizeof(large), 0) == sizeof(large));
    CHECK_EQ(flash_receive(ends[0], &reply), -1);
    CHECK_EQ(errno, EPROTO);

    CHECK(send(ends[1], large, 17, 0) == 17);
    CHECK_EQ(flash_receive(ends[0], &reply), -1);
    CHECK_EQ(errno, EPROTO);

    /* A descriptor with a reply is refused and not left open. */

    before = count_descriptors();
    send_with_descriptor(ends[1], ready, sizeof(ready), ends[1]);
    CHECK_EQ(flash_receive(ends[0], &reply), -1);
    CHECK_EQ(errno, EPROTO);
    CHECK_EQ(count_descriptors(), before);

    /* An empty packet looks like the end of the connection. */

    CHECK(send(ends[1], large, 0, 0) == 0);
    errno = EPROTO;
    CHECK_EQ(flash_receive(ends[0], &reply), -1);
    CHECK_EQ(errno, 0);

    /* Replies that were sent before the end are received. */

    CHECK(send(ends[1], ready, sizeof(ready), 0) == sizeof(ready));
    CHECK(close(ends[1]) == 0);
    CHECK_EQ(flash_receive(ends[0], &reply), 1);
    errno = EPROTO;
    CHECK_EQ(flash_receive(ends[0], &reply), -1);
    CHECK_EQ(errno, 0);
    CHECK(close(ends[0]) == 0);
}


/* flash_ask() drops the replies that are not its own. */

static void
test_other_replies(void)
{
    int              ends[2];
    flash_reply_t    reply;
    flash_request_t  request;

    static const unsigned char  hello[] = { 129, 0, 0, 0, 0, 0, 0, 0,
                                            1, 0, 0, 0, 0, 0, 0, 0 };
    static const unsigned char  other[] = { 130, 0, 0, 0, 3, 0, 0, 0 };
    static const unsigned char  own[] = { 131, 0, 0, 0, 0, 0, 0, 0,
                                          2, 0, 0, 0 };

    pair(ends);
    memset(&request, 0, sizeof(request));
    request.path = "/";
    request.path_len = 1;

    /* The request has the id of HELLO, which is allowed. */

    CHECK(send(ends[1], hello, sizeof(hello), 0) == sizeof(hello));
    CHECK(send(ends[1], other, sizeof(other), 0) == sizeof(other));
    CHECK(send(ends[1], own, sizeof(own), 0) == sizeof(own));
    CHECK_EQ(flash_ask(ends[0], &request, 60000, &reply), 1);
    CHECK_EQ(reply.kind, FLASH_ERRNO);
    CHECK_EQ(reply.value, ENOENT);

    /* No time to wait, no reply: the call returns. */

    CHECK_EQ(flash_ask(ends[0], &request, 0, &reply), 0);
    CHECK_EQ(flash_ask(ends[0], &request, -1, &reply), 0);
    CHECK_EQ(flash_ask(ends[0], &request, 1, &reply), 0);

    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}


static void
pair(int ends[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) == 0);
}


static int
listen_at(const char *path, int backlog)
{
    int                 listener;
    struct sockaddr_un  address;

    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    CHECK(strlen(path) < sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path));
    (void) unlink(path);

    listener = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
    CHECK(listener != -1);
    CHECK(bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0);
    CHECK(listen(listener, backlog) == 0);

    return listener;
}


static int
same_file(int one, int other)
{
    struct stat  a, b;

    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_ino == b.st_ino
           && a.st_dev == b.st_dev;
}


static void
receive_packet(int connection, packet_t *packet)
{
    ssize_t          n;
    struct iovec     iov;
    struct msghdr    message;
    struct cmsghdr  *cmsg;

    union {
        struct cmsghdr  header;
        char            space[CMSG_SPACE(4 * sizeof(int))];
    } control;

    iov.iov_base = packet->bytes;
    iov.iov_len = sizeof(packet->bytes);
    memset(&message, 0, sizeof(message));
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control.space;
    message.msg_controllen = sizeof(control.space);

    n = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    CHECK(n > 0);
    CHECK_EQ(message.msg_flags & (MSG_TRUNC|MSG_CTRUNC), 0);

    packet->length = (size_t) n;
    packet->fd = -1;
    cmsg = CMSG_FIRSTHDR(&message);

    if (cmsg != NULL) {
        CHECK_EQ(cmsg->cmsg_len, CMSG_LEN(sizeof(int)));
        memcpy(&packet->fd, CMSG_DATA(cmsg), sizeof(int));
    }
}


static void
send_with_descriptor(int connection, const void *bytes, size_t length, int fd)
{
    struct iovec     iov;
    struct msghdr    message;

    union {
        struct cmsghdr  header;
        char            space[CMSG_SPACE(sizeof(int))];
    } control;

    memset(&control, 0, sizeof(control));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));

    iov.iov_base = (void *) (uintptr_t) bytes;
    iov.iov_len = length;
    memset(&message, 0, sizeof(message));
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control.space;
    message.msg_controllen = sizeof(control.space);

    CHECK(sendmsg(connection, &message, 0) == (ssize_t) length);
}
