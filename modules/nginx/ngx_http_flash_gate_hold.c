
/*
 * One request's wait for one reply.  A hold lives in the request's pool and
 * is used again for the request's next name or window.  Its timer keeps a
 * worker that is told to quit alive until the reply or the deadline.
 */

#include "ngx_http_flash_gate.h"


/* A backend that lets its deadline pass by this much does not answer. */
#define NGX_HTTP_FLASH_GATE_GRACE_MS     1000

/* Waits before a busy backend is asked again. */
#define NGX_HTTP_FLASH_GATE_RETRY_MS     50
#define NGX_HTTP_FLASH_GATE_UNKNOWN_MS   500
#define NGX_HTTP_FLASH_GATE_BUSY_MS      1000

/* Waits for a full socket, doubled each time. */
#define NGX_HTTP_FLASH_GATE_FULL_MS      10
#define NGX_HTTP_FLASH_GATE_FULL_MAX_MS  160


static ngx_int_t ngx_http_flash_gate_try(ngx_http_flash_gate_hold_t *h,
    ngx_msec_t left);
static ngx_uint_t ngx_http_flash_gate_arrived(ngx_http_flash_gate_hold_t *h);
static void ngx_http_flash_gate_detach(void *data);
static void ngx_http_flash_gate_timeout(ngx_event_t *ev);


ngx_http_flash_gate_hold_t *
ngx_http_flash_gate_hold(ngx_http_request_t *r, ngx_http_flash_gate_ctx_t *ctx,
    ngx_http_flash_gate_hold_t **slot, ngx_http_flash_gate_resume_pt resume)
{
    ngx_http_cleanup_t          *cln;
    ngx_http_flash_gate_hold_t  *h;

    /* an earlier hold's cleanup may have run before an internal redirect */

    if (!ctx->detach) {
        cln = ngx_http_cleanup_add(r, 0);
        if (cln == NULL) {
            return NULL;
        }

        cln->handler = ngx_http_flash_gate_detach;
        cln->data = ctx;
        ctx->detach = 1;
    }

    if (*slot) {
        (*slot)->resume = resume;
        return *slot;
    }

    h = ngx_pcalloc(r->pool, sizeof(ngx_http_flash_gate_hold_t));
    if (h == NULL) {
        return NULL;
    }

    h->request = r;
    h->resume = resume;
    h->timer.handler = ngx_http_flash_gate_timeout;
    h->timer.data = h;
    h->timer.log = r->connection->log;

    *slot = h;

    return h;
}


ngx_uint_t
ngx_http_flash_gate_pending(ngx_http_flash_gate_hold_t *h)
{
    return h && (h->state == NGX_HTTP_FLASH_GATE_ASKED
                 || h->state == NGX_HTTP_FLASH_GATE_RETRY);
}


/*
 * Sends h->ask.  NGX_OK: the request waits, h->resume will be called.
 * NGX_DECLINED: the backend cannot be asked, the request goes on.
 */

ngx_int_t
ngx_http_flash_gate_ask(ngx_http_flash_gate_ctx_t *ctx,
    ngx_http_flash_gate_hold_t *h, ngx_uint_t counter)
{
    ngx_msec_int_t                   left;
    ngx_http_flash_gate_loc_conf_t  *glcf;

    glcf = ngx_http_get_module_loc_conf(h->request,
                                        ngx_http_flash_gate_module);

    if (h->ask.path) {
        /* all names of a request, and its error page, share one timeout */
        h->deadline = ngx_current_msec + glcf->timeout
                      - ngx_min(ctx->named, glcf->timeout);

    } else if (h->asks == 0) {
        h->deadline = ngx_current_msec + glcf->timeout;
    }

    left = (ngx_msec_int_t) (h->deadline - ngx_current_msec);

    if (left <= 0) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LATE, 1);
        h->state = NGX_HTTP_FLASH_GATE_IS_LATE;
        return NGX_ABORT;
    }

    h->since = ngx_current_msec;
    h->full_ms = 0;

    if (ngx_http_flash_gate_try(h, left) != NGX_OK) {
        h->state = NGX_HTTP_FLASH_GATE_IS_OPEN;
        ctx->was_passed = 1;
        return NGX_DECLINED;
    }

    ngx_http_flash_gate_worker.waiting++;

    if (h->asks++) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_ASKED_AGAIN, 1);
    }

    ngx_http_flash_gate_count(counter, 1);

    if (!ctx->was_held) {
        ctx->was_held = 1;
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_HELD, 1);
    }

    return NGX_OK;
}


/* NGX_OK: the hold is pending, also if the socket is full. */

static ngx_int_t
ngx_http_flash_gate_try(ngx_http_flash_gate_hold_t *h, ngx_msec_t left)
{
    ngx_int_t  rc;

    h->ask.deadline_ms = (uint32_t) left;

    rc = ngx_http_flash_gate_send(h);

    if (rc == NGX_OK) {
        h->state = NGX_HTTP_FLASH_GATE_ASKED;
        ngx_add_timer(&h->timer, left + NGX_HTTP_FLASH_GATE_GRACE_MS);
        return NGX_OK;
    }

    if (rc == NGX_AGAIN) {
        h->full_ms = h->full_ms ? ngx_min(2 * h->full_ms,
                                          NGX_HTTP_FLASH_GATE_FULL_MAX_MS)
                                : NGX_HTTP_FLASH_GATE_FULL_MS;

        h->state = NGX_HTTP_FLASH_GATE_RETRY;
        ngx_add_timer(&h->timer, ngx_min(h->full_ms, left));
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/* The hold is no longer known to the connection when this is called. */

void
ngx_http_flash_gate_answer(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_state_e state)
{
    ngx_msec_t                  waited;
    ngx_connection_t           *c;
    ngx_http_request_t         *r;
    ngx_http_flash_gate_ctx_t  *ctx;

    if (h->timer.timer_set) {
        ngx_del_timer(&h->timer);
    }

    r = h->request;
    c = r->connection;
    h->state = state;
    ngx_http_flash_gate_worker.waiting--;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "flash gate: answer %d \"%V?%V\"",
                   (int) state, &r->uri, &r->args);

    waited = ngx_current_msec - h->since;
    ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_WAIT_MS, waited);

    ctx = ngx_http_flash_gate_get_ctx(r);

    if (ctx == NULL || (ctx->hold != h && ctx->look != h)) {
        return;
    }

    ctx->waited += waited;

    if (h->ask.path) {
        ctx->named += waited;
    }

    switch (state) {

    case NGX_HTTP_FLASH_GATE_IS_OPEN:
        ctx->was_passed = 1;
        break;

    case NGX_HTTP_FLASH_GATE_IS_BUSY:
        ctx->was_busy = 1;
        break;

    case NGX_HTTP_FLASH_GATE_IS_LATE:
        ctx->was_late = 1;
        break;

    default:
        break;
    }

    h->resume(h);
    ngx_http_run_posted_requests(c);
}


/*
 * A body cannot be answered with 503 any more: its window is asked for again
 * until the deadline.  The backend's estimate may be longer than the time
 * left, and the load may end earlier, so the waits are bounded.
 */

void
ngx_http_flash_gate_busy(ngx_http_flash_gate_hold_t *h,
    ngx_msec_t retry_after_ms)
{
    ngx_msec_t      wait;
    ngx_msec_int_t  left;

    h->retry_after_ms = retry_after_ms;

    if (!h->retry) {
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_BUSY);
        return;
    }

    left = (ngx_msec_int_t) (h->deadline - ngx_current_msec);
    left = ngx_max(left, 0);

    wait = retry_after_ms ? retry_after_ms : NGX_HTTP_FLASH_GATE_UNKNOWN_MS;
    wait = ngx_min(wait, NGX_HTTP_FLASH_GATE_BUSY_MS);
    wait = ngx_min(wait, (ngx_msec_t) left / 2);
    wait = ngx_max(wait, NGX_HTTP_FLASH_GATE_RETRY_MS);
    wait = ngx_min(wait, (ngx_msec_t) left);

    h->state = NGX_HTTP_FLASH_GATE_RETRY;

    if (h->timer.timer_set) {
        ngx_del_timer(&h->timer);
    }

    ngx_add_timer(&h->timer, wait);
}


static void
ngx_http_flash_gate_timeout(ngx_event_t *ev)
{
    ngx_msec_int_t               left;
    ngx_http_flash_gate_hold_t  *h;

    h = ev->data;

    if (h->state == NGX_HTTP_FLASH_GATE_ASKED) {
        ngx_http_flash_gate_overdue(h);
        return;
    }

    if (ngx_http_flash_gate_arrived(h)) {
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_READY);
        return;
    }

    left = (ngx_msec_int_t) (h->deadline - ngx_current_msec);

    if (left <= 0) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LATE, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_LATE);
        return;
    }

    if (ngx_http_flash_gate_try(h, left) != NGX_OK) {
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_OPEN);
    }
}


/* Whether another request has brought it into memory meanwhile. */

static ngx_uint_t
ngx_http_flash_gate_arrived(ngx_http_flash_gate_hold_t *h)
{
    ngx_str_t                   path;
    flash_residency_t           found;
    ngx_http_flash_gate_pin_t  *pin;

    if (h->ask.path == NULL) {
        return flash_test_range(h->ask.fd, h->ask.offset, h->ask.length)
               == FLASH_RESIDENT;
    }

    path.data = (u_char *) h->ask.path;
    path.len = h->ask.path_len;

    if (path.data[path.len - 1] == '/') {
        /* the entries of a directory cannot be tested */
        return 0;
    }

    found = ngx_http_flash_gate_pin(h->request->pool, &path, &pin);

    if (pin) {
        ngx_http_flash_gate_release_pin(pin);
    }

    return found == FLASH_RESIDENT;
}


/* The request ends, or its hold is void: no reply must find it. */

void
ngx_http_flash_gate_withdraw(ngx_http_flash_gate_hold_t *h)
{
    if (h == NULL) {
        return;
    }

    if (ngx_http_flash_gate_pending(h)) {
        ngx_http_flash_gate_worker.waiting--;
    }

    if (h->state == NGX_HTTP_FLASH_GATE_ASKED) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_WITHDRAWN, 1);
        ngx_http_flash_gate_cancel(h);
    }

    if (h->timer.timer_set) {
        ngx_del_timer(&h->timer);
    }

    h->state = NGX_HTTP_FLASH_GATE_IDLE;
}


static void
ngx_http_flash_gate_detach(void *data)
{
    ngx_http_flash_gate_ctx_t  *ctx = data;

    ctx->detach = 0;

    ngx_http_flash_gate_withdraw(ctx->hold);
    ngx_http_flash_gate_withdraw(ctx->look);
}
