/*
 * The protocol a second time, for the tests: the vectors of vectors.txt, and
 * the directions that the client does not have.  Written from
 * docs/backend-protocol.md and not from flash_client.c.
 */

#ifndef FLASH_MESSAGES_H
#define FLASH_MESSAGES_H

#include "flash_client.h"

#define VECTORS_MAX    64
#define VECTOR_BYTES   512

typedef struct {
    char           kind[16];      /* "WARM_NAME", "INVALID" */
    size_t         descriptors;
    unsigned char  bytes[VECTOR_BYTES];
    size_t         length;
    char           fields[VECTOR_BYTES];
} vector_t;

/* Reads the file; returns the number of vectors, or 0 if it is malformed. */
size_t vectors_read(const char *path, vector_t vectors[VECTORS_MAX]);

/* The number after " name=" in the fields; 0 if there is none. */
uint64_t vector_number(const vector_t *vector, const char *name);

/* The text after " name=" up to the end of the line; NULL if there is none. */
const char *vector_text(const vector_t *vector, const char *name);

/* The bytes of a reply, as the backend sends them; returns their number. */
size_t reply_encode(const flash_reply_t *reply, unsigned char bytes[16]);

/*
 * A request from bytes, as the backend reads it: `path` points into `bytes`.
 * Returns 0, or -1 if it is not a valid WARM_NAME or WARM_RANGE.
 */
int request_decode(const unsigned char *bytes, size_t length,
    flash_request_t *request);


#endif /* FLASH_MESSAGES_H */
