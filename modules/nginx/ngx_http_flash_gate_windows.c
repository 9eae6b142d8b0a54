
/*
 * A window of a file: its range, whether it is in memory, and the question to
 * the backend if it is not.  Called by the filters of _contents.c and _last.c.
 */

#include "ngx_http_flash_gate.h"


/* How many ranges a worker remembers as resident, and how long. */
#define NGX_HTTP_FLASH_GATE_SEEN         1024
#define NGX_HTTP_FLASH_GATE_SEEN_MS      100


/* A range that was found in memory. */

typedef struct {
    uint32_t    hash;                  /* of the file's name */
    uint32_t    length;                /* of the name, 0: nothing is known */
    off_t       pos;
    off_t       last;
    ngx_msec_t  when;
    ngx_uint_t  kept;                  /* its access time can be left alone */
} ngx_http_flash_gate_seen_t;


static void ngx_http_flash_gate_unprepare(ngx_http_flash_gate_ctx_t *ctx,
    ngx_fd_t fd);
static off_t ngx_http_flash_gate_remaining(ngx_chain_t *in);
static void ngx_http_flash_gate_window_resume(ngx_http_flash_gate_hold_t *h);


static ngx_http_flash_gate_seen_t  seen[NGX_HTTP_FLASH_GATE_SEEN];


/* The window at the head of a buffer. */

void
ngx_http_flash_gate_window(ngx_http_request_t *r, ngx_buf_t *b,
    ngx_http_flash_gate_range_t *range)
{
    off_t                            end;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    end = b->file_pos + (off_t) (glcf->force ? NGX_HTTP_FLASH_GATE_FORCED
                                             : glcf->window);

    if (end - end % (off_t) ngx_pagesize > b->file_pos) {
        end -= end % (off_t) ngx_pagesize;
    }

    if (end > b->file_last) {
        end = b->file_last;
    }

    range->file = b->file;
    range->pos = b->file_pos;
    range->size = end - b->file_pos;
}


/*
 * Tests a window.  NGX_OK: it can be passed.  NGX_AGAIN: the request waits.
 * NGX_ERROR: the deadline has passed.
 */

ngx_int_t
ngx_http_flash_gate_test(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_range_t *range)
{
    ngx_int_t                        rc;
    ngx_uint_t                       ready;
    flash_residency_t                found;
    ngx_http_flash_gate_hold_t      *h;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    if (ngx_http_flash_gate_pending(ctx->hold)) {
        return NGX_AGAIN;
    }

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    ready = ngx_http_flash_gate_asked(ctx->hold, range)
            && ctx->hold->state == NGX_HTTP_FLASH_GATE_IS_READY;

    found = ngx_http_flash_gate_residency(ctx->hold, range);

    if (found == FLASH_RESIDENT && (ready || !glcf->force)) {

        if (ready && !glcf->force) {
            /* when the window is needed again, its wait begins anew */
            ctx->hold->ahead = 1;
        }

        return NGX_OK;
    }

    if (found == FLASH_UNTESTABLE
        && (ready || glcf->untestable == NGX_HTTP_FLASH_GATE_PASS))
    {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_UNTESTABLE, 1);
        return NGX_OK;
    }

    h = ngx_http_flash_gate_hold(r, ctx, &ctx->hold,
                                 ngx_http_flash_gate_window_resume);
    if (h == NULL) {
        return NGX_ERROR;
    }

    if (!ctx->prepared) {
        ctx->prepared = 1;
        flash_prepare(range->file->fd);
    }

    rc = ngx_http_flash_gate_need(r, ctx, h, range);

    if (rc == NGX_OK) {
        ngx_http_flash_gate_unprepare(ctx, range->file->fd);
    }

    return rc;
}


/*
 * Whether a range is in memory.  A range that was found resident for any
 * request a short time ago is not tested again: a hot file of another owner
 * costs no system call.  On one of the worker's own, nginx's reads must leave
 * the access time alone.
 */

flash_residency_t
ngx_http_flash_gate_residency(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_range_t *range)
{
    off_t                        last;
    uint32_t                     hash, length;
    ngx_uint_t                   kept;
    flash_residency_t            found;
    ngx_http_flash_gate_seen_t  *s;

    length = (uint32_t) range->file->name.len;
    hash = ngx_murmur_hash2(range->file->name.data, range->file->name.len);
    last = range->pos + range->size;

    s = &seen[(hash + (uint32_t) (range->pos / ngx_pagesize))
              % NGX_HTTP_FLASH_GATE_SEEN];

    if (length && s->length == length && s->hash == hash
        && s->pos <= range->pos && s->last >= last
        && ngx_current_msec - s->when < NGX_HTTP_FLASH_GATE_SEEN_MS)
    {
        if (s->kept) {
            (void) flash_keep_access_time(range->file->fd);
        }

        return FLASH_RESIDENT;
    }

    kept = flash_keep_access_time(range->file->fd);

    if (ngx_http_flash_gate_asked(h, range) && !h->ahead
        && h->state == NGX_HTTP_FLASH_GATE_IS_READY)
    {
        found = flash_test_loaded_range(range->file->fd, range->pos,
                                        range->size);

    } else {
        found = flash_test_range(range->file->fd, range->pos, range->size);
    }

    if (found == FLASH_RESIDENT) {
        s->hash = hash;
        s->length = length;
        s->pos = range->pos;
        s->last = last;
        s->when = ngx_current_msec;
        s->kept = kept;
    }

    return found;
}


/* Whether this range is the last one that the hold was asked for. */

ngx_uint_t
ngx_http_flash_gate_asked(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_range_t *range)
{
    return h && h->state != NGX_HTTP_FLASH_GATE_IDLE
           && h->ask.path == NULL && h->ask.fd == range->file->fd
           && h->ask.offset == (uint64_t) range->pos;
}


/*
 * A range is needed and not in memory: looks at the last answer, or asks.
 * NGX_OK: the request goes on without the range, NGX_AGAIN: it waits,
 * NGX_ERROR: the deadline has passed.
 */

ngx_int_t
ngx_http_flash_gate_need(ngx_http_request_t *r, ngx_http_flash_gate_ctx_t *ctx,
    ngx_http_flash_gate_hold_t *h, ngx_http_flash_gate_range_t *range)
{
    ngx_int_t  rc;

    /* an answer from before the need says nothing about now */

    if (!ngx_http_flash_gate_asked(h, range) || h->ahead) {
        h->asks = 0;

    } else if (h->state == NGX_HTTP_FLASH_GATE_IS_LATE) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "flash gate: \"%V\" was not in memory at %O "
                      "within flash_gate_timeout",
                      &range->file->name, range->pos);
        return NGX_ERROR;

    } else if (h->state == NGX_HTTP_FLASH_GATE_IS_OPEN
               || h->state == NGX_HTTP_FLASH_GATE_IS_FAILED)
    {
        return NGX_OK;
    }

    if (h->asks >= NGX_HTTP_FLASH_GATE_ASKS) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_LOST, 1);
        ctx->was_passed = 1;
        return NGX_OK;
    }

    h->retry = 1;
    h->ahead = 0;
    h->ask.path = NULL;
    h->ask.fd = range->file->fd;
    h->ask.offset = range->pos;
    h->ask.length = range->size;
    h->ask.remaining = range->size;

    if (h == ctx->look) {
        rc = ngx_http_flash_gate_ask(ctx, h, NGX_HTTP_FLASH_GATE_LOOKS_ASKED);

    } else {
        h->ask.remaining = ngx_max(range->size,
                                   ngx_http_flash_gate_remaining(ctx->in));
        rc = ngx_http_flash_gate_ask(ctx, h,
                                     NGX_HTTP_FLASH_GATE_WINDOWS_ASKED);
    }

    if (rc == NGX_DECLINED) {
        return NGX_OK;
    }

    if (rc == NGX_ABORT) {
        ctx->was_late = 1;
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}


/* nginx will read from the disk itself, for which it needs readahead. */

static void
ngx_http_flash_gate_unprepare(ngx_http_flash_gate_ctx_t *ctx, ngx_fd_t fd)
{
    if (ctx->prepared) {
        ctx->prepared = 0;
        (void) posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
    }
}


static off_t
ngx_http_flash_gate_remaining(ngx_chain_t *in)
{
    off_t  size;

    for (size = 0; in; in = in->next) {
        size += ngx_buf_size(in->buf);
    }

    return size;
}


static void
ngx_http_flash_gate_window_resume(ngx_http_flash_gate_hold_t *h)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = h->request;
    c = r->connection;

    if (r->done) {
        c->write->handler(c->write);
        return;
    }

    r->write_event_handler(r);
}
