// A FastCGI application that answers every request at once with the same 13 bytes: for comparisons of builds of a server, in which an
// interpreter would take most of the time. One thread for each connection; it keeps connections if the server asks for that.
//
//     cc -O2 -pthread -o responder bench/common/responder.c && ./responder /run/responder.sock
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Types of records (FastCGI 1.0, section 8).
enum { BEGIN_REQUEST = 1, END_REQUEST = 3, STDIN = 5, STDOUT = 6 };

static const char answer[] = "Content-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, world\n";

static int receive(int fd, void *to, size_t length) {
    for (size_t have = 0; have < length;) {
        ssize_t n = read(fd, (char *)to + have, length - have);
        if (n <= 0) return -1;
        have += (size_t)n;
    }
    return 0;
}

static size_t put_header(uint8_t *to, uint8_t type, uint16_t request, uint16_t length) {
    const uint8_t header[8] = {1, type, (uint8_t)(request >> 8), (uint8_t)request, (uint8_t)(length >> 8), (uint8_t)length, 0, 0};
    memcpy(to, header, sizeof header);
    return sizeof header;
}

static int send_answer(int fd, uint16_t request) {
    uint8_t out[256] = {0};
    size_t length = put_header(out, STDOUT, request, sizeof answer - 1);
    memcpy(out + length, answer, sizeof answer - 1);
    length += sizeof answer - 1;
    length += put_header(out + length, STDOUT, request, 0);
    length += put_header(out + length, END_REQUEST, request, 8) + 8;
    return write(fd, out, length) == (ssize_t)length ? 0 : -1;
}

static void *serve(void *of) {
    int fd = (int)(intptr_t)of, keep = 0;
    uint8_t header[8], content[65536 + 256];
    while (receive(fd, header, sizeof header) == 0) {
        size_t length = (size_t)(header[4] << 8 | header[5]);
        uint16_t request = (uint16_t)(header[2] << 8 | header[3]);
        if (receive(fd, content, length + header[6]) != 0) break;
        if (header[1] == BEGIN_REQUEST) keep = content[2] & 1;
        if (header[1] == STDIN && length == 0 && (send_answer(fd, request) != 0 || !keep)) break;
    }
    close(fd);
    return NULL;
}

int main(int count, char **words) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count != 2 || strlen(words[1]) >= sizeof address.sun_path) return fprintf(stderr, "Usage: responder SOCKET\n"), 2;
    strcpy(address.sun_path, words[1]);
    unlink(words[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 128) != 0)
        return perror(words[1]), 1;
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return perror("accept"), 1;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) != 0) return perror("thread"), 1;
        pthread_detach(thread);
    }
}
