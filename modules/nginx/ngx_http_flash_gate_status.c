
/*
 * Counters, the request's context, the variables and the status page.  The
 * counters of all workers are in one shared memory zone.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_ZONE_BYTES  (8 * ngx_pagesize)


static ngx_int_t ngx_http_flash_gate_init_zone(ngx_shm_zone_t *zone,
    void *data);
static void ngx_http_flash_gate_cleanup(void *data);
static ngx_int_t ngx_http_flash_gate_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_flash_gate_wait_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_flash_gate_status_handler(ngx_http_request_t *r);


static ngx_atomic_t  *counters;


/* In the order of ngx_http_flash_gate_counter_e. */

static char  *names[] = {
    "requests",
    "held",
    "names_asked",
    "windows_asked",
    "looks_asked",
    "asked_again",
    "ready",
    "errno",
    "busy",
    "late",
    "refused",
    "passed_absent",
    "full",
    "passed_lost",
    "passed_untestable",
    "withdrawn",
    "closes",
    "connects",
    "losses",
    "wait_ms"
};


static ngx_http_variable_t  ngx_http_flash_gate_vars[] = {

    { ngx_string("flash_gate"), NULL, ngx_http_flash_gate_variable, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("flash_gate_wait"), NULL, ngx_http_flash_gate_wait_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


void
ngx_http_flash_gate_count(ngx_uint_t counter, ngx_uint_t n)
{
    (void) ngx_atomic_fetch_add(&counters[counter], (ngx_atomic_int_t) n);
}


ngx_shm_zone_t *
ngx_http_flash_gate_add_zone(ngx_conf_t *cf)
{
    ngx_shm_zone_t    *zone;
    static ngx_str_t   name = ngx_string("flash_gate");

    zone = ngx_shared_memory_add(cf, &name, NGX_HTTP_FLASH_GATE_ZONE_BYTES,
                                 &ngx_http_flash_gate_module);
    if (zone) {
        zone->init = ngx_http_flash_gate_init_zone;
    }

    return zone;
}


static ngx_int_t
ngx_http_flash_gate_init_zone(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *shpool;

    if (data) {
        zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) zone->shm.addr;

    if (zone->shm.exists) {
        zone->data = shpool->data;
        return NGX_OK;
    }

    zone->data = ngx_slab_calloc(shpool, NGX_HTTP_FLASH_GATE_COUNTERS
                                         * sizeof(ngx_atomic_t));
    shpool->data = zone->data;

    return zone->data ? NGX_OK : NGX_ERROR;
}


void
ngx_http_flash_gate_use_zone(ngx_shm_zone_t *zone)
{
    counters = zone->data;
}


/*
 * The context of a request outlives internal redirects, which forget the
 * contexts of all modules: it is found again by its cleanup.
 */

ngx_http_flash_gate_ctx_t *
ngx_http_flash_gate_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);

    if (ctx || !(r->internal || r->filter_finalize)) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_http_flash_gate_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                return ctx;
            }
        }
    }

    return NULL;
}


/* Redirected: an earlier hold and an earlier body are void. */

static void
ngx_http_flash_gate_void(ngx_http_request_t *r, ngx_http_flash_gate_ctx_t *ctx)
{
    ngx_http_flash_gate_withdraw(ctx->hold);
    ngx_http_flash_gate_unpin(ctx);
    ctx->in = NULL;
    ctx->naming = 0;
    r->buffered &= ~NGX_HTTP_FLASH_GATE_BUFFERED;
}


/* A request, perhaps redirected, is in a location without the gate. */

void
ngx_http_flash_gate_leave(ngx_http_request_t *r)
{
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_flash_gate_get_ctx(r);

    if (ctx) {
        ngx_http_flash_gate_void(r, ctx);
    }
}


ngx_http_flash_gate_ctx_t *
ngx_http_flash_gate_make_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_flash_gate_module);
    if (ctx) {
        return ctx;
    }

    ctx = ngx_http_flash_gate_get_ctx(r);

    if (ctx) {
        ngx_http_flash_gate_void(r, ctx);

    } else {
        cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_flash_gate_ctx_t));
        if (cln == NULL) {
            return NULL;
        }

        ctx = cln->data;
        ngx_memzero(ctx, sizeof(ngx_http_flash_gate_ctx_t));
        ctx->request = r;
        cln->handler = ngx_http_flash_gate_cleanup;

        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_REQUESTS, 1);
    }

    ngx_http_set_ctx(r, ctx, ngx_http_flash_gate_module);

    return ctx;
}


static void
ngx_http_flash_gate_cleanup(void *data)
{
    ngx_http_flash_gate_unpin(data);
}


ngx_int_t
ngx_http_flash_gate_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_flash_gate_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_flash_gate_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                   s;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_flash_gate_get_ctx(r);

    if (ctx == NULL) {
        ngx_str_set(&s, "off");

    } else if (ctx->was_late) {
        ngx_str_set(&s, "error");

    } else if (ctx->was_busy) {
        ngx_str_set(&s, "busy");

    } else if (ctx->was_passed) {
        ngx_str_set(&s, "passed");

    } else if (ctx->was_held) {
        ngx_str_set(&s, "held");

    } else {
        ngx_str_set(&s, "hit");
    }

    v->len = s.len;
    v->data = s.data;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_flash_gate_wait_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                     *p;
    ngx_msec_t                  ms;
    ngx_http_flash_gate_ctx_t  *ctx;

    ctx = ngx_http_flash_gate_get_ctx(r);
    ms = ctx ? ctx->waited : 0;

    p = ngx_pnalloc(r->pool, NGX_TIME_T_LEN + 4);
    if (p == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(p, "%T.%03M", (time_t) ms / 1000, ms % 1000) - p;
    v->data = p;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


char *
ngx_http_flash_gate_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_flash_gate_status_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_flash_gate_status_handler(ngx_http_request_t *r)
{
    size_t                            size;
    ngx_str_t                         text;
    ngx_uint_t                        i;
    ngx_http_complex_value_t          cv;
    ngx_atomic_t                     *all;
    ngx_http_flash_gate_main_conf_t  *gmcf;
    static ngx_str_t                  type = ngx_string("text/plain");

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    gmcf = ngx_http_get_module_main_conf(r, ngx_http_flash_gate_module);
    all = gmcf->zone->data;

    size = (3 + NGX_HTTP_FLASH_GATE_COUNTERS)
           * (sizeof("passed_untestable ") + NGX_INT_T_LEN);

    text.data = ngx_pnalloc(r->pool, size);
    if (text.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    text.len = ngx_sprintf(text.data, "worker_pid %P\nworker_connected %ui\n"
                           "worker_waiting %ui\n", ngx_pid,
                           ngx_http_flash_gate_worker.connected,
                           ngx_http_flash_gate_worker.waiting)
               - text.data;

    for (i = 0; i < NGX_HTTP_FLASH_GATE_COUNTERS; i++) {
        text.len = ngx_sprintf(text.data + text.len, "%s %uA\n",
                               names[i], all[i])
                   - text.data;
    }

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));
    cv.value = text;

    return ngx_http_send_response(r, NGX_HTTP_OK, &type, &cv);
}
