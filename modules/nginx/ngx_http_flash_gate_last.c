
/*
 * The last look: a body filter directly before the write filter.  The bytes
 * that a slow client has not taken yet stay in r->out as ranges of files, and
 * so does the output of a subrequest that is not in turn.  They may have been
 * evicted since they were tested; nginx would read them from the disk in
 * sendfile().
 *
 * A hold here looks to the other filters like a client that reads slowly.
 */

#include "ngx_http_flash_gate.h"


static ngx_int_t ngx_http_flash_gate_last_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_flash_gate_last_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_flash_gate_look(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_flash_gate_look_at(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t *in, off_t *left);
static ngx_int_t ngx_http_flash_gate_look_range(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_range_t *range);
static ngx_int_t ngx_http_flash_gate_keep(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_http_flash_gate_look_resume(ngx_http_flash_gate_hold_t *h);


static ngx_http_module_t  ngx_http_flash_gate_last_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_flash_gate_last_init,         /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_flash_gate_last_module = {
    NGX_MODULE_V1,
    &ngx_http_flash_gate_last_module_ctx,  /* module context */
    NULL,                                  /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_output_body_filter_pt  ngx_http_next_body_filter;


static ngx_int_t
ngx_http_flash_gate_last_init(ngx_conf_t *cf)
{
    ngx_http_flash_gate_main_conf_t  *gmcf;

    gmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_flash_gate_module);

    if (gmcf->used) {
        ngx_http_next_body_filter = ngx_http_top_body_filter;
        ngx_http_top_body_filter = ngx_http_flash_gate_last_filter;
    }

    return NGX_OK;
}


/* The request is always a main request. */

static ngx_int_t
ngx_http_flash_gate_last_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                   rc;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);

    if (ctx == NULL || r->upstream != ctx->upstream || r->connection->error) {
        return ngx_http_next_body_filter(r, in);
    }

    if (ngx_http_flash_gate_pending(ctx->look)) {
        return ngx_http_flash_gate_keep(r, in);
    }

    rc = ngx_http_flash_gate_look(r, ctx, in);

    if (rc == NGX_AGAIN) {
        return ngx_http_flash_gate_keep(r, in);
    }

    if (rc == NGX_ERROR) {
        r->connection->error = 1;
        return NGX_ERROR;
    }

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_flash_gate_look(ngx_http_request_t *r, ngx_http_flash_gate_ctx_t *ctx,
    ngx_chain_t *in)
{
    off_t                            left;
    ngx_int_t                        rc;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    /* force: what a client has left is held once, new input is not */

    if (glcf->force ? (in != NULL)
                    : (ngx_current_msec - ctx->tested
                       < NGX_HTTP_FLASH_GATE_RECENT_MS))
    {
        return NGX_OK;
    }

    left = ngx_http_flash_gate_turn(r);

    rc = ngx_http_flash_gate_look_at(r, ctx, r->out, &left);

    if (rc == NGX_OK) {
        rc = ngx_http_flash_gate_look_at(r, ctx, in, &left);
    }

    if (rc == NGX_OK) {
        ctx->tested = ngx_current_msec;
    }

    return rc;
}


/* All that the write filter can send now is needed: up to *left bytes. */

static ngx_int_t
ngx_http_flash_gate_look_at(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_chain_t *in, off_t *left)
{
    ngx_int_t                        rc;
    ngx_http_flash_gate_range_t      range;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    for ( /* void */ ; in && *left > 0; in = in->next) {

        if (!ngx_http_flash_gate_in_file(in->buf)) {
            continue;
        }

        range.file = in->buf->file;
        range.pos = in->buf->file_pos;

        while (range.pos < in->buf->file_last && *left > 0) {

            range.size = ngx_min(in->buf->file_last - range.pos,
                                 (off_t) glcf->window);

            rc = ngx_http_flash_gate_look_range(r, ctx, &range);

            if (rc != NGX_OK) {
                return rc;
            }

            if (glcf->force) {
                *left = 0;
                return NGX_OK;
            }

            range.pos += range.size;
            *left -= range.size;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_flash_gate_look_range(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_range_t *range)
{
    flash_residency_t                found;
    ngx_http_flash_gate_hold_t      *h;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);
    h = ctx->look;

    if (glcf->force) {

        if (ngx_http_flash_gate_asked(h, range)
            && h->state == NGX_HTTP_FLASH_GATE_IS_READY)
        {
            return NGX_OK;
        }

    } else {
        found = ngx_http_flash_gate_residency(h, range);

        if (found == FLASH_RESIDENT) {

            if (ngx_http_flash_gate_asked(h, range)) {
                /* when the range is needed again, its wait begins anew */
                h->ahead = 1;
            }

            return NGX_OK;
        }

        /* the window was asked for already where nothing can be tested */

        if (found == FLASH_UNTESTABLE) {
            return NGX_OK;
        }
    }

    h = ngx_http_flash_gate_hold(r, ctx, &ctx->look,
                                 ngx_http_flash_gate_look_resume);
    if (h == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_flash_gate_need(r, ctx, h, range);
}


/* As the write filter does while limit_rate delays it. */

static ngx_int_t
ngx_http_flash_gate_keep(ngx_http_request_t *r, ngx_chain_t *in)
{
    if (in && ngx_chain_add_copy(r->pool, &r->out, in) != NGX_OK) {
        return NGX_ERROR;
    }

    r->connection->buffered |= NGX_HTTP_WRITE_BUFFERED;

    return NGX_AGAIN;
}


static void
ngx_http_flash_gate_look_resume(ngx_http_flash_gate_hold_t *h)
{
    ngx_connection_t  *c;

    /* the request in turn may be a subrequest */

    c = h->request->connection;
    c->write->handler(c->write);
}
