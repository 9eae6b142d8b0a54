/*
 * Holding a request: tests whether something is in memory, asks the backend if
 * not, and tests again.  Called by the hooks in mod_flashpache.c.
 */

#include "mod_flashpache.h"

#include "apr_strings.h"
#include "http_core.h"
#include "http_request.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

APLOG_USE_MODULE(flashpache);

/* Asked for at once; the small ones are for tests. */
#define WINDOW                 FLASH_RANGE_MAX
#define WINDOW_FORCED          4096

/* After this many holds for the same thing, the request goes on. */
#define HOLDS_MAX              3

#define RETRY_AFTER_TIMEOUT_S  5
#define RETRY_AFTER_MAX_S      120

/* There is no test whether the kernel has a directory's entries. */
#define DIRECTORY_WARM_MS      5000

/* A name that was found in memory is not tested again for this time.  It needs
 * no pin: the kernel drops names that were not used for longer first. */
#define NAME_WARM_MS           100

/* Names are pinned until the end of a request.  After a short one, nobody
 * looks whether the file was deleted meanwhile. */
#define SHORT_REQUEST          apr_time_from_msec(100)

/* The awaited name, or if `path` is NULL the awaited range of a file. */
typedef struct {
    const char *path;
    int is_directory;
    int pin;
    int fd;
    apr_off_t offset;
    apr_off_t length;
    apr_off_t remaining;
} thing_t;


/* The state of a request. */

request_rec *flashpache_whole_request(const request_rec *r)
{
    while (r->main) {
        r = r->main;
    }
    return (request_rec *)r;
}

flashpache_request_t *flashpache_known_request(const request_rec *r)
{
    return ap_get_module_config(flashpache_whole_request(r)->request_config,
                                &flashpache_module);
}

/* A subrequest often ends before its request, and its pool with it. */
static apr_status_t forget_names(void *data)
{
    flashpache_request_t *request = data;

    request->present = NULL;
    request->pinned = NULL;
    request->name = NULL;
    request->off = NULL;
    request->shut = NULL;
    request->part = NULL;
    return APR_SUCCESS;
}

flashpache_request_t *flashpache_request_of(request_rec *r)
{
    request_rec *whole = flashpache_whole_request(r);
    flashpache_request_t *request = flashpache_known_request(whole);

    if (!request) {
        request = apr_pcalloc(whole->pool, sizeof(*request));
        ap_set_module_config(whole->request_config, &flashpache_module,
                             request);

        if (whole->prev) {
            const flashpache_request_t *before =
                flashpache_known_request(whole->prev);

            if (before) {
                request->waited = before->waited;
                request->without = before->without;
                request->is_error_page = before->refused
                                         || before->is_error_page;
            }
        }
    }
    if (r != whole && request->part != r) {
        request->part = r;
        apr_pool_cleanup_register(r->pool, request, forget_names,
                                  apr_pool_cleanup_null);
    }
    return request;
}

static void note_outcome(flashpache_request_t *request,
                         flashpache_outcome_t outcome)
{
    if (request->outcome < outcome) {
        request->outcome = outcome;
    }
}

/* Ends a request with 503, or returns DONE if it must go on. */
static int refuse(request_rec *r, flashpache_request_t *request,
                  flashpache_outcome_t outcome, apr_uint32_t retry_after_ms)
{
    apr_uint32_t seconds = retry_after_ms / 1000 + (retry_after_ms % 1000 > 0);

    if (r->main && request->answering) {
        /* A part of a page that is being sent, such as an SSI include.  An
         * overload must not change the page; a dead disk must not hang it. */
        if (outcome == FLASHPACHE_BUSY) {
            note_outcome(request, FLASHPACHE_PASSED);
            return DONE;
        }
        note_outcome(request, outcome);
        return HTTP_SERVICE_UNAVAILABLE;
    }

    note_outcome(request, outcome);
    request->refused = 1;

    if (seconds < 1) {
        seconds = 1;
    }
    if (seconds > RETRY_AFTER_MAX_S) {
        seconds = RETRY_AFTER_MAX_S;
    }
    r = flashpache_whole_request(r);
    apr_table_setn(r->err_headers_out, "Retry-After",
                   apr_psprintf(r->pool, "%u", seconds));
    return HTTP_SERVICE_UNAVAILABLE;
}


/* Holds. */

/* Whether a name has a file where it needs a directory, as a script's does that
 * is followed by path information.  The kernel fails to look up such a name
 * from its cache, although the answer is there. */
static int is_beneath_file(const char *path)
{
    char parent[FLASH_PATH_MAX + 1];
    struct statx about;
    int pin, is_file;
    char *slash;

    apr_cpystrn(parent, path, sizeof(parent));
    while ((slash = strrchr(parent, '/')) != NULL && slash != parent) {
        *slash = '\0';
        if (flash_test_name(parent, &pin) != FLASH_RESIDENT) {
            continue;
        }
        if (pin == -1) {
            return 0;
        }
        is_file = statx(pin, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                        STATX_TYPE, &about) == 0
                  && S_ISREG(about.stx_mode);
        close(pin);
        return is_file;
    }
    return 0;
}

static flash_residency_t test(thing_t *thing)
{
    if (thing->is_directory) {
        return flashpache_recent(thing->path, FLASHPACHE_ENTRIES,
                                 DIRECTORY_WARM_MS)
               ? FLASH_RESIDENT : FLASH_UNTESTABLE;
    }
    if (thing->path) {
        flash_residency_t verdict;

        if (thing->pin != -1) {
            close(thing->pin);
        }
        verdict = flash_test_name(thing->path, &thing->pin);
        if (verdict == FLASH_COLD && is_beneath_file(thing->path)) {
            verdict = FLASH_RESIDENT;
        }
        if (verdict == FLASH_RESIDENT && !flashpache_config.force) {
            flashpache_remember(thing->path, thing->pin == -1
                                ? FLASHPACHE_MISSING : FLASHPACHE_PRESENT);
        }
        return verdict;
    }
    return flash_test_range(thing->fd, thing->offset, thing->length);
}

/* Tests what the backend has just brought into memory. */
static flash_residency_t test_loaded(thing_t *thing)
{
    if (thing->path) {
        return test(thing);
    }
    return flash_test_loaded_range(thing->fd, thing->offset, thing->length);
}

/* Asks for a thing, and waits for the reply.  Returns OK if the thing is to be
 * tested again, DONE if the request goes on in any case, else a status. */
static int hold(request_rec *r, flashpache_request_t *request,
                const thing_t *thing)
{
    apr_interval_time_t left = apr_time_from_sec(flashpache_config.timeout_s)
                               - request->waited;
    flash_request_t message = {
        .deadline_ms = (apr_uint32_t)apr_time_as_msec(left),
        .path = thing->path,
        .path_len = thing->path ? strlen(thing->path) : 0,
        .fd = thing->fd,
        .offset = (apr_uint64_t)thing->offset,
        .length = (apr_uint64_t)thing->length,
        .remaining = (apr_uint64_t)thing->remaining
    };
    flashpache_asked_t asked;
    flash_reply_t reply;
    apr_time_t began;

    if (request->without) {
        return DONE;
    }
    if (left < apr_time_from_msec(1)) {
        goto late;
    }

    began = apr_time_now();
    asked = flashpache_ask(&message, &reply);
    left = apr_time_now() - began;
    if (left > 0) {
        request->waited += left;
        flashpache_count(FLASHPACHE_WAIT_US, (apr_uint64_t)left);
    }

    if (asked == FLASHPACHE_FULL) {
        return refuse(r, request, FLASHPACHE_BUSY, 0);
    }
    if (asked == FLASHPACHE_UNANSWERED) {
        note_outcome(request, FLASHPACHE_ERROR);
        request->without = 1;
        return DONE;
    }
    if (reply.kind == FLASH_BUSY) {
        return refuse(r, request, FLASHPACHE_BUSY, reply.value);
    }

    note_outcome(request, FLASHPACHE_HELD);
    if (reply.kind == FLASH_ERRNO) {
        if (reply.value == ETIMEDOUT) {
            goto late;
        }
        /* Apache finds the same error, and has its own answer to it. */
        return DONE;
    }
    return OK;

late:
    ap_log_rerror(APLOG_MARK, APLOG_WARNING, 0, r, "%s was not in memory "
                  "within %d s; the answer is 503",
                  thing->path ? thing->path : r->filename,
                  flashpache_config.timeout_s);
    return refuse(r, request, FLASHPACHE_TIMEOUT,
                  RETRY_AFTER_TIMEOUT_S * 1000);
}

/* Holds the request until the thing is in memory.  Returns OK or a status. */
static int bring_in(request_rec *r, flashpache_request_t *request,
                    thing_t *thing)
{
    flash_residency_t verdict = FLASH_COLD;
    int holds, status;

    if (!flashpache_config.force || request->is_error_page) {
        verdict = test(thing);
    }

    for (holds = 0; verdict != FLASH_RESIDENT; holds++) {
        if (request->is_error_page) {
            /* The error is told without it: it could be on a dead disk. */
            return HTTP_SERVICE_UNAVAILABLE;
        }
        if (holds > 0 && verdict == FLASH_UNTESTABLE) {
            flashpache_count(FLASHPACHE_UNTESTABLE, 1);
            return OK;
        }
        if (holds == HOLDS_MAX) {
            flashpache_count(FLASHPACHE_LOST, 1);
            note_outcome(request, FLASHPACHE_PASSED);
            return OK;
        }

        status = hold(r, request, thing);
        if (status != OK) {
            return status == DONE ? OK : status;
        }
        if (thing->is_directory) {
            flashpache_remember(thing->path, FLASHPACHE_ENTRIES);
        }
        verdict = test_loaded(thing);
    }
    return OK;
}

typedef struct {
    int fd;
    apr_time_t since;
} pin_t;

static apr_status_t unpin(void *data)
{
    const pin_t *pin = data;
    int fd = pin->fd;
    struct statx about;

    /* This is often the last descriptor of the file, and the last close of a
     * deleted one waits for the disk.  A disk that hangs is not asked. */
    if (apr_time_now() - pin->since > SHORT_REQUEST
        && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK,
                 &about) == 0
        && about.stx_nlink == 0) {
        flashpache_leave(fd);
    }
    close(fd);
    return APR_SUCCESS;
}

/* Whether a child has found a name in memory a moment ago. */
static int is_recent_name(flashpache_request_t *request, const char *path)
{
    if (flashpache_config.force) {
        return 0;
    }
    if (flashpache_recent(path, FLASHPACHE_PRESENT, NAME_WARM_MS)) {
        request->present = path;
        return 1;
    }
    return flashpache_recent(path, FLASHPACHE_MISSING, NAME_WARM_MS);
}

int flashpache_bring_in_name(request_rec *r, flashpache_request_t *request,
                             const char *path)
{
    if ((request->present && strcmp(path, request->present) == 0)
        || is_recent_name(request, path)) {
        return OK;
    }
    return flashpache_pin_name(r, request, path);
}

/* Holds the request until a name is in memory, and keeps it there for as long
 * as the request lives.  Returns OK or a status. */
int flashpache_pin_name(request_rec *r, flashpache_request_t *request,
                        const char *path)
{
    thing_t name = { .path = path, .pin = -1, .fd = -1 };
    int status;

    if (path[0] != '/' || strlen(path) > FLASH_PATH_MAX
        || (request->pinned && strcmp(path, request->pinned) == 0)) {
        return OK;
    }

    status = bring_in(r, request, &name);

    if (name.pin != -1) {
        pin_t *pin = apr_palloc(r->pool, sizeof(*pin));

        pin->fd = name.pin;
        pin->since = r->request_time;
        request->pinned = path;
        request->present = path;
        apr_pool_cleanup_register(r->pool, pin, unpin, apr_pool_cleanup_null);
    }
    return status;
}

/* The entries of a directory. */
int flashpache_bring_in_directory(request_rec *r,
                                  flashpache_request_t *request,
                                  const char *path)
{
    thing_t directory = {
        .path = path, .is_directory = 1, .pin = -1, .fd = -1
    };

    return bring_in(r, request, &directory);
}

/* Holds the request until a part of a file is in memory. */
static int bring_in_window(request_rec *r, flashpache_request_t *request,
                           int fd, const flashpache_window_t *window)
{
    apr_off_t most = flashpache_config.force ? WINDOW_FORCED : WINDOW;
    apr_off_t left = window->length;
    thing_t range = { .pin = -1, .fd = fd, .offset = window->offset };
    int status = OK;

    while (left > 0 && status == OK) {
        range.remaining = left;
        range.length = left < most ? left : most;
        status = bring_in(r, request, &range);
        range.offset += range.length;
        left -= range.length;
    }
    return status;
}

/* Opens a file whose name is in memory, and brings these parts of it in. */
int flashpache_bring_in_file(request_rec *r, flashpache_request_t *request,
                             const char *path,
                             const flashpache_window_t *windows, int count)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int status = OK, i;

    if (fd == -1) {
        return OK;
    }
    (void)flash_keep_access_time(fd);
    flash_prepare(fd);
    for (i = 0; i < count && status == OK; i++) {
        status = bring_in_window(r, request, fd, &windows[i]);
    }
    close(fd);
    return status;
}
