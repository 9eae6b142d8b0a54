/*
 * A fuzzer of the client: an input is decoded, received as packets by
 * flash_receive() and flash_ask(), and read as the fields of requests.
 *
 * With clang this is a libFuzzer target.  With FLASH_FUZZ_MAIN it has a driver
 * of its own, for gcc: it mutates the vectors for a number of seconds and
 * prints its seed first: fuzz VECTORS SECONDS [SEED].
 */

#define _GNU_SOURCE

#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


#define INPUT_MAX  8192

#define MUST(condition)                                                       \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__,        \
                    #condition);                                              \
            abort();                                                          \
        }                                                                     \
    } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void fuzz_decode(const uint8_t *data, size_t length);
static void fuzz_receive(const uint8_t *data, size_t length);
static void fuzz_encode(const uint8_t *data, size_t length);
static void fuzz_hello(const uint8_t *data, size_t length);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t length)
{
    fuzz_decode(data, length);
    fuzz_receive(data, length);
    fuzz_encode(data, length);
    fuzz_hello(data, length);

    return 0;
}


/* An accepted reply says all of its bytes. */

static void
fuzz_decode(const uint8_t *data, size_t length)
{
    flash_reply_t  reply;
    unsigned char  back[16];

    errno = 0;

    if (flash_decode(data, length, &reply) == 0) {
        MUST(reply_encode(&reply, back) == length);
        MUST(memcmp(back, data, length) == 0);

    } else {
        MUST(errno == EPROTO);
    }
}


/* The input as packets, each behind a byte with its length. */

static void
fuzz_receive(const uint8_t *data, size_t length)
{
    int              ends[2], result, packets;
    size_t           part;
    flash_reply_t    reply;
    flash_request_t  request;

    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) == 0);

    for (packets = 0; length > 0 && packets < 64; packets++) {
        part = data[0] < length ? data[0] : length - 1;
        data++;
        length--;
        MUST(send(ends[1], data, part, MSG_DONTWAIT) == (ssize_t) part);
        data += part;
        length -= part;
    }

    memset(&request, 0, sizeof(request));
    request.id = 1;
    request.path = "/";
    request.path_len = 1;

    result = flash_ask(ends[0], &request, 0, &reply);
    MUST(result != 1 || (reply.id == 1 && reply.kind != FLASH_HELLO_REPLY));
    MUST(result != -1 || errno == 0 || errno == EPROTO);

    while (result == 1 && packets-- > 0) {
        result = flash_receive(ends[0], &reply);
    }

    MUST(close(ends[0]) == 0 && close(ends[1]) == 0);
}


/* A request that is encoded is one that the backend reads alike. */

static void
fuzz_encode(const uint8_t *data, size_t length)
{
    size_t           size;
    uint64_t         numbers[4];
    unsigned char    bytes[FLASH_MESSAGE_MAX];
    flash_request_t  request, decoded;

    if (length < sizeof(numbers)) {
        return;
    }

    memcpy(numbers, data, sizeof(numbers));
    memset(&request, 0, sizeof(request));
    request.id = (uint32_t) numbers[0];
    request.deadline_ms = (uint32_t) (numbers[0] >> 32);
    request.offset = numbers[1];
    request.length = numbers[2] >> (numbers[3] & 63);
    request.remaining = numbers[3];

    if (numbers[1] & 1) {
        request.path = (const char *) data + sizeof(numbers);
        request.path_len = length - sizeof(numbers);
    }

    size = flash_encode(&request, bytes);

    if (size == 0) {
        return;
    }

    MUST(size <= sizeof(bytes));
    MUST(request_decode(bytes, size, &decoded) == 0);
    MUST(decoded.id == request.id);
    MUST(decoded.deadline_ms == request.deadline_ms);

    if (request.path != NULL) {
        MUST(decoded.path_len == request.path_len);
        MUST(memcmp(decoded.path, request.path, request.path_len) == 0);
        return;
    }

    MUST(decoded.offset == request.offset);
    MUST(decoded.length == request.length);
    MUST(decoded.remaining == request.remaining);
}


static void
fuzz_hello(const uint8_t *data, size_t length)
{
    char           name[64];
    size_t         size;
    flash_hello_t  hello;
    unsigned char  bytes[FLASH_MESSAGE_MAX];

    length = length < sizeof(name) - 1 ? length : sizeof(name) - 1;
    memcpy(name, data, length);
    name[length] = '\0';

    hello.name = name;
    hello.group = length;
    hello.waiters_max = 1;
    size = flash_encode_hello(&hello, bytes);

    MUST(size == 0 || (size == 24 + strlen(name) && size <= 24 + 32));
}


#ifdef FLASH_FUZZ_MAIN

static uint64_t random_next(uint64_t *state);
static size_t mutate(uint64_t *state, const vector_t *vectors, size_t count,
    uint8_t input[INPUT_MAX]);


int
main(int argc, char **argv)
{
    time_t    end;
    size_t    count, length;
    uint8_t  *copy;
    uint64_t  state, runs;

    static uint8_t   input[INPUT_MAX];
    static vector_t  vectors[VECTORS_MAX];

    if (argc < 3) {
        fprintf(stderr, "usage: %s VECTORS SECONDS [SEED]\n", argv[0]);
        return 2;
    }

    count = vectors_read(argv[1], vectors);
    if (count == 0) {
        fprintf(stderr, "cannot read vectors from %s\n", argv[1]);
        return 2;
    }

    state = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t) time(NULL);
    printf("seed: %llu\n", (unsigned long long) state);
    fflush(stdout);
    end = time(NULL) + atol(argv[2]);

    for (runs = 0; runs == 0 || time(NULL) < end; runs++) {
        length = mutate(&state, vectors, count, input);

        /* Memory of exactly this length, for the address sanitizer. */

        copy = malloc(length);
        MUST(copy != NULL || length == 0);

        if (length > 0) {
            memcpy(copy, input, length);
        }

        (void) LLVMFuzzerTestOneInput(copy, length);
        free(copy);
    }

    printf("inputs: %llu, no fault\n", (unsigned long long) runs);

    return 0;
}


/* Steele, Lea, Flood: SplitMix64 (OOPSLA 2014). */

static uint64_t
random_next(uint64_t *state)
{
    uint64_t  z;

    *state += 0x9e3779b97f4a7c15;
    z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;

    return z ^ (z >> 31);
}


/*
 * One to eight vectors, half of the time each behind its length, then up to
 * eight changes: a bit, a byte, a cut, a repeated part.
 */

static size_t
mutate(uint64_t *state, const vector_t *vectors, size_t count,
    uint8_t input[INPUT_MAX])
{
    size_t           at, length;
    uint64_t         i, r, packets;
    const vector_t  *v;

    length = 0;
    packets = random_next(state);

    for (i = random_next(state) % 8 + 1; i > 0; i--) {
        v = &vectors[random_next(state) % count];

        if (packets & 1) {
            input[length++] = (uint8_t) v->length;
        }

        memcpy(input + length, v->bytes, v->length);
        length += v->length;

        if (packets & 2) {
            break;
        }
    }

    for (i = random_next(state) % 9; i > 0 && length > 0; i--) {
        r = random_next(state);
        at = (size_t) ((r >> 8) % length);

        switch (r & 3) {

        case 0:
            input[at] ^= (uint8_t) (1u << ((r >> 4) & 7));
            break;

        case 1:
            input[at] = (uint8_t) (r >> 40);
            break;

        case 2:
            length = at;
            break;

        default:
            if (length + (length - at) <= INPUT_MAX) {
                memcpy(input + length, input + at, length - at);
                length += length - at;
            }
        }
    }

    return length;
}

#endif
