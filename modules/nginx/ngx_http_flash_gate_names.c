
/*
 * Names: before nginx opens a file, the name must be in the kernel's name
 * cache, and stay there until nginx has opened it.
 *
 * There are two handlers in the precontent phase.  The first runs before
 * try_files; the last runs after it and looks only if the URI has changed.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_DIRECTORIES    64
#define NGX_HTTP_FLASH_GATE_DIRECTORY_SEC  5

#define ngx_http_flash_gate_index          "index.html"


typedef struct {
    uint32_t  hash;
    uint32_t  length;
    time_t    until;
} ngx_http_flash_gate_directory_t;


static ngx_int_t ngx_http_flash_gate_names(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx);
static ngx_int_t ngx_http_flash_gate_one_name(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_str_t *path);
static ngx_int_t ngx_http_flash_gate_name_at(ngx_http_request_t *r,
    ngx_uint_t i, ngx_str_t *path);
static ngx_int_t ngx_http_flash_gate_ask_name(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_str_t *path);
static void ngx_http_flash_gate_name_resume(ngx_http_flash_gate_hold_t *h);
static ngx_int_t ngx_http_flash_gate_refuse(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_msec_t retry_after_ms);
static ngx_uint_t ngx_http_flash_gate_has_index(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_uint_t ngx_http_flash_gate_known(ngx_str_t *path);
static void ngx_http_flash_gate_remember(ngx_str_t *path);


/* Directories that the backend has read lately. */

static ngx_http_flash_gate_directory_t
    directories[NGX_HTTP_FLASH_GATE_DIRECTORIES];


ngx_int_t
ngx_http_flash_gate_first_handler(ngx_http_request_t *r)
{
    ngx_http_flash_gate_ctx_t       *ctx;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    if (!glcf->enable) {
        ngx_http_flash_gate_leave(r);
        return NGX_DECLINED;
    }

    ctx = ngx_http_flash_gate_make_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!ctx->naming) {
        /* bodies of this upstream are not gated, those after it are */
        ctx->upstream = r->upstream;
        ctx->index = 0;
    }

    return ngx_http_flash_gate_names(r, ctx);
}


ngx_int_t
ngx_http_flash_gate_last_handler(ngx_http_request_t *r)
{
    ngx_http_flash_gate_ctx_t       *ctx;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);
    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);

    if (!glcf->enable || ctx == NULL) {
        return NGX_DECLINED;
    }

    if (!ctx->naming) {

        /* try_files sets the URI again, also to what it was */

        if (ctx->uri.len == r->uri.len
            && ngx_memcmp(ctx->uri.data, r->uri.data, r->uri.len) == 0)
        {
            return NGX_DECLINED;
        }

        ctx->index = 0;
    }

    return ngx_http_flash_gate_names(r, ctx);
}


static ngx_int_t
ngx_http_flash_gate_names(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx)
{
    ngx_int_t                        rc;
    ngx_str_t                        path;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    ctx->uri = r->uri;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    if (r->content_handler && glcf->names == NULL) {
        /* a proxy, for example: its names are no files, unless named so */
        return NGX_DECLINED;
    }

    if (ngx_http_flash_gate_pending(ctx->hold)) {
        return NGX_AGAIN;
    }

    if (!ctx->naming) {
        ngx_http_flash_gate_unpin(ctx);
        ctx->naming = 1;

        if (ctx->hold) {
            ctx->hold->asks = 0;
            ctx->hold->state = NGX_HTTP_FLASH_GATE_IDLE;
        }
    }

    for ( ;; ) {
        rc = ngx_http_flash_gate_name_at(r, ctx->index, &path);

        if (rc != NGX_OK) {
            break;
        }

        if (path.len && path.data[0] == '/') {
            rc = ngx_http_flash_gate_one_name(r, ctx, &path);

            if (rc == NGX_AGAIN) {
                return NGX_AGAIN;
            }

            if (rc != NGX_OK) {
                break;
            }
        }

        ctx->index++;

        if (glcf->names == NULL && ctx->npins) {
            /* a directory with an index: only autoindex reads its entries */
            rc = NGX_DECLINED;
            break;
        }

        if (ctx->hold) {
            ctx->hold->asks = 0;
            ctx->hold->state = NGX_HTTP_FLASH_GATE_IDLE;
        }
    }

    ctx->naming = 0;

    return rc;
}


/* NGX_OK: go on with the next name; NGX_AGAIN: wait; else refuse. */

static ngx_int_t
ngx_http_flash_gate_one_name(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_str_t *path)
{
    ngx_uint_t                       asks, directory, refused;
    flash_residency_t                found;
    ngx_http_flash_gate_pin_t       *pin;
    ngx_http_flash_gate_hold_t      *h;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);
    directory = (path->data[path->len - 1] == '/');
    h = ctx->hold;
    asks = h ? h->asks : 0;

    switch (h ? h->state : NGX_HTTP_FLASH_GATE_IDLE) {

    case NGX_HTTP_FLASH_GATE_IS_OPEN:
    case NGX_HTTP_FLASH_GATE_IS_FAILED:
        return NGX_OK;

    case NGX_HTTP_FLASH_GATE_IS_BUSY:
        return ngx_http_flash_gate_refuse(r, ctx, h->retry_after_ms);

    case NGX_HTTP_FLASH_GATE_IS_LATE:
        return ngx_http_flash_gate_refuse(r, ctx, 0);

    case NGX_HTTP_FLASH_GATE_IS_READY:
        if (directory) {
            ngx_http_flash_gate_remember(path);
        }

        break;

    default:
        break;
    }

    found = ngx_http_flash_gate_pin(r->pool, path, &pin);

    if (pin) {

        if (ctx->npins == NGX_HTTP_FLASH_GATE_NAMES) {
            ngx_http_flash_gate_unpin(ctx);
        }

        ctx->pins[ctx->npins++] = pin;
    }

    refused = ctx->was_busy || ctx->was_late;

    if (found == FLASH_RESIDENT
        && (asks || refused
            || (!glcf->force
                && (!directory || pin == NULL
                    || ngx_http_flash_gate_known(path)
                    || ngx_http_flash_gate_has_index(r, path)))))
    {
        return NGX_OK;
    }

    if (found == FLASH_UNTESTABLE
        && (asks || refused || glcf->untestable == NGX_HTTP_FLASH_GATE_PASS))
    {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_UNTESTABLE, 1);
        return NGX_OK;
    }

    if (refused) {
        /* an error page: the request has waited already */
        return ngx_http_flash_gate_refuse(r, ctx, 0);
    }

    if (asks >= NGX_HTTP_FLASH_GATE_ASKS) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_LOST, 1);
        ctx->was_passed = 1;
        return NGX_OK;
    }

    return ngx_http_flash_gate_ask_name(r, ctx, path);
}


/*
 * The names to test, one after another: those of flash_gate_names, else the
 * file of the request and, for a directory, first its usual index.
 */

static ngx_int_t
ngx_http_flash_gate_name_at(ngx_http_request_t *r, ngx_uint_t i,
    ngx_str_t *path)
{
    u_char                          *last;
    size_t                           root;
    ngx_http_complex_value_t        *cv;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(r, ngx_http_flash_gate_module);

    if (glcf->names) {

        if (i >= glcf->names->nelts) {
            return NGX_DECLINED;
        }

        cv = glcf->names->elts;

        if (ngx_http_complex_value(r, &cv[i], path) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        /* the value ends with a zero: see "zero" in the directive */
        path->len = ngx_strlen(path->data);

        return NGX_OK;
    }

    if (i > 1 || (i == 1 && r->uri.data[r->uri.len - 1] != '/')) {
        return NGX_DECLINED;
    }

    last = ngx_http_map_uri_to_path(r, path, &root,
                                    sizeof(ngx_http_flash_gate_index) - 1);
    if (last == NULL) {
        return NGX_DECLINED;
    }

    if (i == 0 && r->uri.data[r->uri.len - 1] == '/') {
        last = ngx_cpymem(last, ngx_http_flash_gate_index,
                          sizeof(ngx_http_flash_gate_index) - 1);
        *last = '\0';
    }

    path->len = last - path->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_flash_gate_ask_name(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_str_t *path)
{
    ngx_int_t                    rc;
    ngx_http_flash_gate_hold_t  *h;

    h = ngx_http_flash_gate_hold(r, ctx, &ctx->hold,
                                 ngx_http_flash_gate_name_resume);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->retry = 0;
    h->ask.path = (char *) path->data;
    h->ask.path_len = path->len;

    rc = ngx_http_flash_gate_ask(ctx, h, NGX_HTTP_FLASH_GATE_NAMES_ASKED);

    if (rc == NGX_DECLINED) {
        return NGX_OK;
    }

    if (rc == NGX_ABORT) {
        ctx->was_late = 1;
        return ngx_http_flash_gate_refuse(r, ctx, 0);
    }

    /*
     * The request waits like one that limit_req delays.  A request body that
     * is being read or discarded keeps its reader.
     */

    if (r == r->main && !r->discard_body && !r->reading_body) {

        if (r->connection->read->ready) {
            ngx_post_event(r->connection->read, &ngx_posted_events);

        } else if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
            ngx_http_flash_gate_withdraw(h);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        r->read_event_handler = ngx_http_test_reading;
    }

    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_AGAIN;
}


static void
ngx_http_flash_gate_name_resume(ngx_http_flash_gate_hold_t *h)
{
    ngx_http_request_t         *r;
    ngx_http_flash_gate_ctx_t  *ctx;

    r = h->request;
    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);

    if (ctx == NULL || ctx->hold != h || !ctx->naming) {
        return;
    }

    if (r->read_event_handler == ngx_http_test_reading) {
        r->read_event_handler = ngx_http_block_reading;
    }

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_flash_gate_refuse(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_msec_t retry_after_ms)
{
    ngx_table_elt_t  *h;

    ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_REFUSED, 1);

    if (r != r->main || ctx->refused) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->value.data = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (h->value.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
    ngx_str_set(&h->key, "Retry-After");
    h->value.len = ngx_sprintf(h->value.data, "%M",
                               retry_after_ms ? (retry_after_ms + 999) / 1000
                                              : 1)
                   - h->value.data;

    ctx->refused = 1;

    return NGX_HTTP_SERVICE_UNAVAILABLE;
}


/* Whether the directory's usual index is in memory. */

static ngx_uint_t
ngx_http_flash_gate_has_index(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_str_t                   name;
    ngx_http_flash_gate_pin_t  *pin;

    name.len = path->len + sizeof(ngx_http_flash_gate_index) - 1;
    name.data = ngx_pnalloc(r->pool, name.len + 1);

    if (name.data == NULL) {
        return 0;
    }

    ngx_memcpy(ngx_cpymem(name.data, path->data, path->len),
               ngx_http_flash_gate_index, sizeof(ngx_http_flash_gate_index));

    (void) ngx_http_flash_gate_pin(r->pool, &name, &pin);

    if (pin == NULL) {
        return 0;
    }

    ngx_http_flash_gate_release_pin(pin);

    return 1;
}


static ngx_uint_t
ngx_http_flash_gate_known(ngx_str_t *path)
{
    uint32_t                          hash;
    ngx_http_flash_gate_directory_t  *d;

    hash = ngx_crc32_long(path->data, path->len);
    d = &directories[hash % NGX_HTTP_FLASH_GATE_DIRECTORIES];

    return d->hash == hash && d->length == path->len && d->until > ngx_time();
}


static void
ngx_http_flash_gate_remember(ngx_str_t *path)
{
    uint32_t                          hash;
    ngx_http_flash_gate_directory_t  *d;

    hash = ngx_crc32_long(path->data, path->len);
    d = &directories[hash % NGX_HTTP_FLASH_GATE_DIRECTORIES];

    d->hash = hash;
    d->length = path->len;
    d->until = ngx_time() + NGX_HTTP_FLASH_GATE_DIRECTORY_SEC;
}
