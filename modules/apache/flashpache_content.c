/*
 * The content of a file: which parts of it a request begins with, and whether
 * they are tested.  Called by the handler in mod_flashpache.c.
 */

#include "mod_flashpache.h"

#include "apr_lib.h"
#include "http_core.h"

/* A content that was found in memory is not tested again for this time. */
#define CONTENT_WARM_MS        1000

/* A smaller file needs no pin: it is hardly ever deleted while it is sent. */
#define PINNED_FROM_BYTES      65536

/* Parses digits; -1 if there are none or too many. */
static apr_off_t parse_number(const char **p)
{
    apr_off_t number = 0;
    int digits;

    for (digits = 0; apr_isdigit(**p); digits++, (*p)++) {
        if (digits == 18) {
            return -1;
        }
        number = number * 10 + (**p - '0');
    }
    return digits ? number : -1;
}

/* Parses one range of RFC 9110, section 14.1.2.  Returns 0 if there is none. */
static int parse_range(const char **p, apr_off_t size,
                       flashpache_window_t *window)
{
    apr_off_t first, last;

    while (**p == ' ' || **p == '\t' || **p == ',') {
        (*p)++;
    }
    first = parse_number(p);
    if (*(*p)++ != '-') {
        return 0;
    }
    last = parse_number(p);

    if (first == -1) {
        if (last <= 0) {
            return 0;
        }
        window->length = last < size ? last : size;
        window->offset = size - window->length;
        return 1;
    }
    if (first >= size || (last != -1 && last < first)) {
        return 0;
    }
    window->offset = first;
    window->length = (last == -1 || last >= size ? size : last + 1) - first;
    return 1;
}

/* The parts of the file that the answer begins with: the requested ranges, or
 * the beginning of the file, together at most `first_bytes`.  Apache may still
 * send the whole file, as after a stale If-Range. */
static int windows_of(const request_rec *r,
                      flashpache_window_t windows[FLASHPACHE_RANGES_MAX])
{
    const char *field = apr_table_get(r->headers_in, "Range");
    apr_off_t left = flashpache_config.first_bytes;
    int count = 0;

    if (field && strncasecmp(field, "bytes=", 6) == 0) {
        field += 6;
        while (count < FLASHPACHE_RANGES_MAX && left > 0
               && parse_range(&field, r->finfo.size, &windows[count])) {
            if (windows[count].length > left) {
                windows[count].length = left;
            }
            left -= windows[count++].length;
            if (*field != ',') {
                break;
            }
        }
    }

    if (count == 0) {
        windows[0].offset = 0;
        windows[0].length = r->finfo.size < left ? r->finfo.size : left;
        count = 1;
    }
    return count;
}

int flashpache_bring_in_content(request_rec *r,
                                flashpache_request_t *request)
{
    flashpache_window_t windows[FLASHPACHE_RANGES_MAX];
    int count = windows_of(r, windows), status;
    apr_uint64_t number = (apr_uint64_t)r->finfo.mtime
                          ^ (apr_uint64_t)r->finfo.size << 20
                          ^ (apr_uint64_t)windows[0].offset << 7
                          ^ (apr_uint64_t)windows[0].length << 34;

    if (!flashpache_config.force && count == 1
        && flashpache_recent(r->filename, number, CONTENT_WARM_MS)) {
        return r->finfo.size < PINNED_FROM_BYTES
               ? OK : flashpache_pin_name(r, request, r->filename);
    }

    status = flashpache_pin_name(r, request, r->filename);
    if (status == OK) {
        status = flashpache_bring_in_file(r, request, r->filename, windows,
                                          count);
    }
    if (status == OK && count == 1 && request->outcome < FLASHPACHE_PASSED) {
        flashpache_remember(r->filename, number);
    }
    return status;
}
