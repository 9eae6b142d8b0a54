/*
 * The byte vectors, in both directions, and every truncation and bit flip of
 * them.  Each input lies in memory of exactly its length, so the address
 * sanitizer finds a read beyond it.
 */

#define _GNU_SOURCE

#include "check.h"
#include "messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


static void test_reply(const vector_t *v);
static void test_request(const vector_t *v);
static void test_hello(const vector_t *v);
static void test_mutations(const vector_t *v);
static int accepted(const unsigned char *bytes, size_t length);
static int decode_exactly(const unsigned char *bytes, size_t length,
    flash_reply_t *reply);
static void test_bounds(void);


static vector_t  vectors[VECTORS_MAX];


void
test_vectors(const char *path)
{
    size_t         i, count, replies, requests;
    vector_t      *v;
    flash_reply_t  reply;

    replies = 0;
    requests = 0;
    count = vectors_read(path, vectors);
    CHECK(count > 0);

    for (i = 0; i < count; i++) {
        v = &vectors[i];

        if (v->bytes[0] >= FLASH_HELLO_REPLY && strcmp(v->kind, "INVALID") != 0)
        {
            test_reply(v);
            replies++;

        } else {

            /* Also a valid message of the client is none of the backend's. */

            errno = 0;
            CHECK_EQ(decode_exactly(v->bytes, v->length, &reply), -1);
            CHECK_EQ(errno, EPROTO);
        }

        if (strcmp(v->kind, "HELLO") == 0) {
            test_hello(v);
            requests++;
        }

        if (strncmp(v->kind, "WARM_", 5) == 0) {
            test_request(v);
            requests++;
        }

        test_mutations(v);
    }

    CHECK(replies > 0 && requests > 0);
    test_bounds();
    printf("vectors: %zu\n", count);
}


static void
test_reply(const vector_t *v)
{
    flash_reply_t  reply;
    unsigned char  bytes[16];

    CHECK_EQ(decode_exactly(v->bytes, v->length, &reply), 0);
    CHECK_EQ(reply.id, vector_number(v, "id"));
    CHECK_EQ(reply.status, vector_number(v, "status"));
    CHECK_EQ(reply.value, vector_number(v, "version")
                          + vector_number(v, "errno")
                          + vector_number(v, "retry_after_ms"));
    CHECK_EQ(reply_encode(&reply, bytes), v->length);
    CHECK(memcmp(bytes, v->bytes, v->length) == 0);
}


static void
test_request(const vector_t *v)
{
    size_t           length;
    unsigned char    bytes[FLASH_MESSAGE_MAX];
    flash_request_t  request, decoded;

    memset(&request, 0, sizeof(request));
    request.id = (uint32_t) vector_number(v, "id");
    request.deadline_ms = (uint32_t) vector_number(v, "deadline_ms");
    request.path = vector_text(v, "path");
    request.path_len = request.path == NULL ? 0 : strlen(request.path);
    request.fd = -1;
    request.offset = vector_number(v, "offset");
    request.length = vector_number(v, "length");
    request.remaining = vector_number(v, "remaining");

    length = flash_encode(&request, bytes);
    CHECK_EQ(length, v->length);
    CHECK(memcmp(bytes, v->bytes, length) == 0);

    /* The decoder that the fuzzer compares with has to be right itself. */

    CHECK_EQ(request_decode(v->bytes, v->length, &decoded), 0);
    CHECK_EQ(decoded.offset, request.offset);
    CHECK_EQ(decoded.length, request.length);
    CHECK_EQ(decoded.path_len, request.path_len);
}


static void
test_hello(const vector_t *v)
{
    size_t         length;
    flash_hello_t  hello;
    unsigned char  bytes[FLASH_MESSAGE_MAX];

    hello.name = vector_text(v, "name");
    hello.group = vector_number(v, "group");
    hello.waiters_max = (uint32_t) vector_number(v, "waiters_max");

    length = flash_encode_hello(&hello, bytes);
    CHECK_EQ(length, v->length);
    CHECK(memcmp(bytes, v->bytes, length) == 0);
}


/*
 * A truncated, longer or changed message is refused, or the reply says all of
 * its bytes.  A valid message of another length is refused always.
 */

static void
test_mutations(const vector_t *v)
{
    size_t         i, length;
    unsigned char  bytes[VECTOR_BYTES + 1];

    memcpy(bytes, v->bytes, v->length);
    bytes[v->length] = 0;

    for (length = 0; length <= v->length + 1; length++) {
        CHECK(!accepted(bytes, length) || length == v->length
              || strcmp(v->kind, "INVALID") == 0);
    }

    for (i = 0; i < v->length * 8; i++) {
        bytes[i / 8] ^= (unsigned char) (1u << (i % 8));
        (void) accepted(bytes, v->length);
        bytes[i / 8] ^= (unsigned char) (1u << (i % 8));
    }
}


static int
accepted(const unsigned char *bytes, size_t length)
{
    flash_reply_t  reply;
    unsigned char  back[16];

    if (decode_exactly(bytes, length, &reply) == -1) {
        return 0;
    }

    CHECK_EQ(reply_encode(&reply, back), length);
    CHECK(memcmp(bytes, back, length) == 0);

    return 1;
}


static int
decode_exactly(const unsigned char *bytes, size_t length, flash_reply_t *reply)
{
    int             result;
    unsigned char  *copy;

    copy = malloc(length);
    CHECK(copy != NULL || length == 0);

    if (length > 0) {
        memcpy(copy, bytes, length);
    }

    memset(reply, 0xff, sizeof(flash_reply_t));
    result = flash_decode(copy, length, reply);
    free(copy);

    return result;
}


static void
test_bounds(void)
{
    char             path[FLASH_PATH_MAX + 1];
    flash_hello_t    hello;
    unsigned char    bytes[FLASH_MESSAGE_MAX];
    flash_request_t  request;

    memset(&hello, 0, sizeof(hello));
    CHECK_EQ(flash_encode_hello(&hello, bytes), 0);
    hello.name = "";
    CHECK_EQ(flash_encode_hello(&hello, bytes), 0);
    hello.name = "12345678901234567890123456789012";
    CHECK_EQ(flash_encode_hello(&hello, bytes), 24 + 32);
    hello.name = "123456789012345678901234567890123";
    CHECK_EQ(flash_encode_hello(&hello, bytes), 0);
    hello.name = "a\nb";
    CHECK_EQ(flash_encode_hello(&hello, bytes), 0);
    hello.name = "\xc3\xbc";
    CHECK_EQ(flash_encode_hello(&hello, bytes), 0);

    memset(&request, 0, sizeof(request));
    memset(path, '/', sizeof(path));
    request.path = path;
    CHECK_EQ(flash_encode(&request, bytes), 0);
    request.path_len = FLASH_PATH_MAX;
    CHECK_EQ(flash_encode(&request, bytes), FLASH_MESSAGE_MAX);
    request.path_len = FLASH_PATH_MAX + 1;
    CHECK_EQ(flash_encode(&request, bytes), 0);
    request.path_len = SIZE_MAX;
    CHECK_EQ(flash_encode(&request, bytes), 0);
    request.path_len = 3;
    path[2] = '\0';
    CHECK_EQ(flash_encode(&request, bytes), 0);
    request.path = "a/b";
    CHECK_EQ(flash_encode(&request, bytes), 0);

    request.path = NULL;
    CHECK_EQ(flash_encode(&request, bytes), 0);
    request.length = FLASH_RANGE_MAX;
    request.offset = UINT64_MAX;
    request.remaining = UINT64_MAX;
    CHECK_EQ(flash_encode(&request, bytes), 40);
    request.length = FLASH_RANGE_MAX + 1;
    CHECK_EQ(flash_encode(&request, bytes), 0);
}
