
/*
 * Contents: a body filter directly before the copy filter, where file buffers
 * have their exact ranges and nothing has been read.  It passes one window of
 * a file at a time, when the window is in memory and the one before has left,
 * and asks for the next window meanwhile.
 *
 * The rest of the chain is kept here like in any filter that buffers: a bit
 * of r->buffered keeps the request alive, and its write handler comes back.
 * It is not r->aio, so that the bytes passed on before go on draining.
 */

#include "ngx_http_flash_gate.h"


/* Passed in one turn of a request where sendfile_max_chunk sets no limit. */
#define NGX_HTTP_FLASH_GATE_TURN_BYTES   (2 * 1024 * 1024)

static ngx_int_t ngx_http_flash_gate_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_flash_gate_windows(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx);
static ngx_int_t ngx_http_flash_gate_pass(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t *out);
static void ngx_http_flash_gate_wake(ngx_http_request_t *r);
static ngx_int_t ngx_http_flash_gate_ahead(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx);
static ngx_int_t ngx_http_flash_gate_collect(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t **out, off_t *sum);
static ngx_int_t ngx_http_flash_gate_piece(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, off_t size, ngx_chain_t **piece);
static ngx_int_t ngx_http_flash_gate_copying(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx);
static void ngx_http_flash_gate_watch(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_buf_t *b);
static void ngx_http_flash_gate_deleted(void *data);


/* of nginx, found when the module is loaded */
extern ngx_module_t  ngx_http_copy_filter_module;

static ngx_http_output_body_filter_pt  ngx_http_next_body_filter;


void
ngx_http_flash_gate_contents_init(void)
{
    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_flash_gate_body_filter;
}


ngx_uint_t
ngx_http_flash_gate_in_file(ngx_buf_t *b)
{
    return b->in_file && !ngx_buf_in_memory(b) && !b->temp_file
           && b->file_last > b->file_pos
           && b->file->fd != NGX_INVALID_FILE;
}


static ngx_int_t
ngx_http_flash_gate_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);

    if (ctx == NULL || r->upstream != ctx->upstream) {
        return ngx_http_next_body_filter(r, in);
    }

    if (in) {
        ngx_http_flash_gate_unpin(ctx);

        if (ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK) {
            return NGX_ERROR;
        }

    } else {

        /* first what has been passed already */

        rc = ngx_http_flash_gate_copying(r, ctx);

        if (rc == NGX_OK) {
            rc = ngx_http_flash_gate_pass(r, ctx, NULL);
        }

        if (rc != NGX_OK || ctx->in == NULL) {
            return rc;
        }
    }

    rc = ngx_http_flash_gate_windows(r, ctx);

    if (ctx->in) {
        r->buffered |= NGX_HTTP_FLASH_GATE_BUFFERED;
        return (rc == NGX_OK) ? NGX_AGAIN : rc;
    }

    r->buffered &= ~NGX_HTTP_FLASH_GATE_BUFFERED;

    return rc;
}


static ngx_int_t
ngx_http_flash_gate_windows(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx)
{
    off_t         sum;
    ngx_int_t     rc, held;
    ngx_chain_t  *out;

    sum = 0;

    for ( ;; ) {
        out = NULL;
        held = ngx_http_flash_gate_collect(r, ctx, &out, &sum);

        if (held == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (out == NULL) {
            return NGX_AGAIN;
        }

        rc = ngx_http_flash_gate_pass(r, ctx, out);

        if (rc == NGX_ERROR || rc == NGX_DONE || ctx->in == NULL) {
            return rc;
        }

        if (rc == NGX_AGAIN) {
            break;
        }

        if (held == NGX_AGAIN) {

            /* the end of what was passed, which TLS keeps for a full record */

            if (r->connection->buffered & NGX_LOWLEVEL_BUFFERED) {
                ngx_http_flash_gate_wake(r);
            }

            return NGX_AGAIN;
        }

        if (sum >= ngx_http_flash_gate_turn(r)) {
            ngx_http_flash_gate_wake(r);
            return NGX_AGAIN;
        }
    }

    return (held == NGX_OK) ? ngx_http_flash_gate_ahead(r, ctx) : NGX_AGAIN;
}


/*
 * NGX_OK: the next window can follow.  This is so too if a filter answers
 * NGX_AGAIN only because it keeps the end of what was passed until more comes
 * (TLS a part of a record, the write filter less than postpone_output): then
 * no event of the connection will come.
 */

static ngx_int_t
ngx_http_flash_gate_pass(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t *out)
{
    ngx_int_t     rc;
    ngx_event_t  *wev;

    rc = ngx_http_next_body_filter(r, out);

    if (rc == NGX_ERROR || rc == NGX_DONE) {
        return rc;
    }

    ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out,
                            (ngx_buf_tag_t) &ngx_http_flash_gate_module);

    wev = r->connection->write;

    if (rc == NGX_AGAIN && ctx->in && ctx->busy == NULL
        && !(r->buffered & NGX_HTTP_COPY_BUFFERED)
        && wev->ready && !wev->delayed && !wev->posted)
    {
        return NGX_OK;
    }

    return rc;
}


/* The request goes on after the other events of the worker. */

static void
ngx_http_flash_gate_wake(ngx_http_request_t *r)
{
    ngx_event_t  *wev;

    wev = r->connection->write;

    if (wev->ready && !wev->delayed) {
        ngx_post_event(wev, &ngx_posted_next_events);
    }
}


/* How much one call passes: as nginx, so that a fast client lets others in. */

off_t
ngx_http_flash_gate_turn(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    return clcf->sendfile_max_chunk ? (off_t) clcf->sendfile_max_chunk
                                    : NGX_HTTP_FLASH_GATE_TURN_BYTES;
}


/* The client reads: asks for the next window meanwhile, once. */

static ngx_int_t
ngx_http_flash_gate_ahead(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx)
{
    ngx_int_t                    rc;
    ngx_http_flash_gate_range_t  range;

    if (!ngx_http_flash_gate_in_file(ctx->in->buf)
        || ngx_http_flash_gate_pending(ctx->hold))
    {
        return NGX_AGAIN;
    }

    ngx_http_flash_gate_window(r, ctx->in->buf, &range);

    if (ngx_http_flash_gate_asked(ctx->hold, &range)) {
        return NGX_AGAIN;
    }

    rc = ngx_http_flash_gate_test(r, ctx, &range);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_AGAIN) {
        ctx->hold->ahead = 1;
    }

    return NGX_AGAIN;
}


/*
 * Moves buffers from ctx->in to *out: all in memory, and files up to about
 * one window, which are added to *sum.  NGX_AGAIN: the next buffer waits for
 * the backend.
 */

static ngx_int_t
ngx_http_flash_gate_collect(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t **out, off_t *sum)
{
    off_t                            passed;
    ngx_int_t                        rc;
    ngx_buf_t                       *b;
    ngx_chain_t                     *cl, **ll;
    ngx_http_flash_gate_range_t      range;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);
    ll = out;
    passed = 0;

    while (ctx->in) {
        cl = ctx->in;
        b = cl->buf;

        if (ngx_http_flash_gate_in_file(b)) {

            ngx_http_flash_gate_window(r, b, &range);

            if (passed && (glcf->force
                           || passed + range.size > (off_t) glcf->window))
            {
                return NGX_OK;
            }

            rc = ngx_http_flash_gate_test(r, ctx, &range);

            if (rc != NGX_OK) {
                return rc;
            }

            ctx->tested = ngx_current_msec;
            ngx_http_flash_gate_watch(r, ctx, b);
            passed += range.size;
            *sum += range.size;

            if (range.size < b->file_last - b->file_pos) {
                return ngx_http_flash_gate_piece(r, ctx, range.size, ll);
            }
        }

        ctx->in = cl->next;
        cl->next = NULL;
        *ll = cl;
        ll = &cl->next;
    }

    return NGX_OK;
}


/* The first bytes of the first buffer; its flags stay with its last bytes. */

static ngx_int_t
ngx_http_flash_gate_piece(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, off_t size, ngx_chain_t **piece)
{
    ngx_buf_t    *b, *w;
    ngx_chain_t  *cl;

    cl = ngx_chain_get_free_buf(r->pool, &ctx->free);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    b = ctx->in->buf;
    w = cl->buf;

    ngx_memzero(w, sizeof(ngx_buf_t));

    w->tag = (ngx_buf_tag_t) &ngx_http_flash_gate_module;
    w->in_file = 1;
    w->file = b->file;
    w->file_pos = b->file_pos;
    w->file_last = b->file_pos + size;

    b->file_pos += size;

    *piece = cl;

    return NGX_OK;
}


/*
 * Without sendfile the copy filter reads a window piece by piece, as the
 * client takes them: the rest may have been evicted since the window passed.
 */

static ngx_int_t
ngx_http_flash_gate_copying(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx)
{
    off_t                            size;
    ngx_int_t                        rc;
    ngx_buf_t                       *b;
    ngx_output_chain_ctx_t          *copy;
    ngx_http_flash_gate_range_t      range;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    copy = ngx_http_get_module_ctx(r, ngx_http_copy_filter_module);

    if (copy == NULL || copy->in == NULL) {
        return NGX_OK;
    }

    b = copy->in->buf;

    if (!ngx_http_flash_gate_in_file(b)) {
        return NGX_OK;
    }

    if (ngx_http_flash_gate_pending(ctx->hold)) {
        /* the window after this one: what was passed goes on */
        return (ctx->hold->ask.offset == (uint64_t) b->file_pos) ? NGX_AGAIN
                                                                 : NGX_OK;
    }

    if (ngx_current_msec - ctx->tested < NGX_HTTP_FLASH_GATE_RECENT_MS) {
        return NGX_OK;
    }

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);
    ngx_http_flash_gate_window(r, b, &range);

    if (!glcf->force) {

        /* the copy filter reads into its buffers only */

        size = range.size;
        range.size = ngx_min(size, (off_t) (copy->bufs.num * copy->bufs.size));

        if (ngx_http_flash_gate_residency(ctx->hold, &range)
            == FLASH_RESIDENT)
        {
            ctx->tested = ngx_current_msec;
            return NGX_OK;
        }

        range.size = size;
    }

    rc = ngx_http_flash_gate_test(r, ctx, &range);

    if (rc == NGX_OK) {
        ctx->tested = ngx_current_msec;
    }

    return rc;
}


/* When the request ends, its file may have been deleted: see _closes.c. */

static void
ngx_http_flash_gate_watch(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_buf_t *b)
{
    ngx_pool_cleanup_t  *cln;

    if (ctx->closing || b->file_last < NGX_HTTP_FLASH_GATE_LARGE_BYTES) {
        return;
    }

    ctx->closing = 1;

    /* runs before the cleanup that closes the file, which is older */

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return;
    }

    cln->handler = ngx_http_flash_gate_deleted;
    cln->data = b->file;
}


static void
ngx_http_flash_gate_deleted(void *data)
{
    ngx_file_t  *file = data;

    struct stat  st;

    if (file->fd != NGX_INVALID_FILE
        && fstat(file->fd, &st) == 0
        && st.st_nlink == 0)
    {
        ngx_http_flash_gate_close_elsewhere(file->fd);
    }
}
