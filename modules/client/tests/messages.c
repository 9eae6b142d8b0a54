/* The backend's side of the protocol, for the tests; see messages.h. */

#define _GNU_SOURCE

#include "messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


static uint64_t little_endian(const unsigned char *p, size_t bytes);
static size_t hexadecimal(const char *text, unsigned char bytes[VECTOR_BYTES]);


size_t
vectors_read(const char *path, vector_t vectors[VECTORS_MAX])
{
    int        skipped;
    FILE      *file;
    char       line[2048], bytes[1024];
    size_t     count;
    vector_t  *v;

    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }

    count = 0;

    while (fgets(line, sizeof(line), file) != NULL) {

        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }

        if (count == VECTORS_MAX) {
            count = 0;
            break;
        }

        v = &vectors[count];
        memset(v, 0, sizeof(vector_t));
        line[strcspn(line, "\n")] = '\0';

        if (sscanf(line, "%15s %zu %1023s%n", v->kind, &v->descriptors, bytes,
                   &skipped)
            != 3
            || strlen(line + skipped) >= sizeof(v->fields))
        {
            count = 0;
            break;
        }

        v->length = hexadecimal(bytes, v->bytes);
        memcpy(v->fields, line + skipped, strlen(line + skipped) + 1);
        count++;
    }

    fclose(file);

    return count;
}


static size_t
hexadecimal(const char *text, unsigned char bytes[VECTOR_BYTES])
{
    size_t  length;
    char    digits[3] = { 0, 0, 0 };

    for (length = 0; text[0] != '\0' && text[0] != '-'; text += 2) {
        digits[0] = text[0];
        digits[1] = text[1];
        bytes[length++] = (unsigned char) strtoul(digits, NULL, 16);
    }

    return length;
}


const char *
vector_text(const vector_t *vector, const char *name)
{
    char         key[32];
    const char  *found;

    (void) snprintf(key, sizeof(key), " %s=", name);
    found = strstr(vector->fields, key);

    return found == NULL ? NULL : found + strlen(key);
}


uint64_t
vector_number(const vector_t *vector, const char *name)
{
    const char  *text;

    text = vector_text(vector, name);

    return text == NULL ? 0 : strtoull(text, NULL, 10);
}


static uint64_t
little_endian(const unsigned char *p, size_t bytes)
{
    uint64_t  value;

    for (value = 0; bytes > 0; bytes--) {
        value = value << 8 | p[bytes - 1];
    }

    return value;
}


size_t
reply_encode(const flash_reply_t *reply, unsigned char bytes[16])
{
    size_t  i, length;

    memset(bytes, 0, 16);
    bytes[0] = (unsigned char) reply->kind;

    for (i = 0; i < 4; i++) {
        bytes[4 + i] = (unsigned char) (reply->id >> (8 * i));
        bytes[8 + i] = (unsigned char) (reply->value >> (8 * i));
        bytes[12 + i] = (unsigned char) (reply->status >> (8 * i));
    }

    length = 8;

    if (reply->kind != FLASH_READY) {
        length = reply->kind == FLASH_HELLO_REPLY ? 16 : 12;
    }

    return length;
}


int
request_decode(const unsigned char *bytes, size_t length,
    flash_request_t *request)
{
    memset(request, 0, sizeof(flash_request_t));
    request->fd = -1;

    if (length < 16 || little_endian(bytes + 1, 3) != 0
        || little_endian(bytes + 12, 4) != 0)
    {
        return -1;
    }

    request->id = (uint32_t) little_endian(bytes + 4, 4);
    request->deadline_ms = (uint32_t) little_endian(bytes + 8, 4);

    if (bytes[0] == 2) {
        request->path = (const char *) bytes + 16;
        request->path_len = length - 16;

        return (request->path_len > 0 && request->path_len <= 4095
                && request->path[0] == '/'
                && memchr(request->path, 0, request->path_len) == NULL)
               ? 0 : -1;
    }

    if (bytes[0] != 3 || length != 40) {
        return -1;
    }

    request->offset = little_endian(bytes + 16, 8);
    request->length = little_endian(bytes + 24, 8);
    request->remaining = little_endian(bytes + 32, 8);

    return request->length > 0 && request->length <= 1048576 ? 0 : -1;
}
