
/*
 * Holds that have been sent and are not answered: sending them, the replies to
 * them, and what becomes of them when the connection of _backend.c ends.
 *
 * They are answered from a posted event then, since the end can be found in
 * the middle of another request's handlers.
 */

#include "ngx_http_flash_gate.h"


/* Longer than a posted event takes. */
#define NGX_HTTP_FLASH_GATE_RELEASE_MS  1000


static void ngx_http_flash_gate_release(ngx_event_t *ev);
static ngx_int_t ngx_http_flash_gate_check(ngx_http_flash_gate_hold_t *h);
static ngx_int_t ngx_http_flash_gate_try(ngx_http_flash_gate_hold_t *h);
static ngx_http_flash_gate_hold_t *ngx_http_flash_gate_find(uint32_t id);
static void ngx_http_flash_gate_forget(ngx_http_flash_gate_hold_t *h);


static ngx_rbtree_t       sent;               /* holds by id */
static ngx_rbtree_node_t  sentinel;
static uint32_t           last_id;
static ngx_event_t        release;


void
ngx_http_flash_gate_sent_init(ngx_log_t *log)
{
    last_id = 0;
    ngx_rbtree_init(&sent, &sentinel, ngx_rbtree_insert_value);
    ngx_http_flash_gate_event(&release, ngx_http_flash_gate_release, log);
}


/* The connection has ended for good: all holds go on without an answer. */

void
ngx_http_flash_gate_release_sent(void)
{
    if (sent.root != &sentinel) {
        ngx_post_event(&release, &ngx_posted_events);
    }
}


static void
ngx_http_flash_gate_release(ngx_event_t *ev)
{
    ngx_rbtree_node_t           *node;
    ngx_http_flash_gate_hold_t  *h;

    while (!ngx_http_flash_gate_worker.connected
           && !ngx_http_flash_gate_worker.resuming
           && sent.root != &sentinel)
    {
        node = ngx_rbtree_min(sent.root, &sentinel);
        h = ngx_rbtree_data(node, ngx_http_flash_gate_hold_t, node);

        ngx_http_flash_gate_forget(h);
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_ABSENT, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_OPEN);
    }
}


/* Sends the holds again that the last connection has not answered. */

void
ngx_http_flash_gate_resend(void)
{
    ngx_socket_t                 fd;
    ngx_rbtree_node_t           *node;
    ngx_http_flash_gate_hold_t  *h;

    if (sent.root == &sentinel) {
        return;
    }

    fd = ngx_http_flash_gate_worker.connection->fd;

    for (node = ngx_rbtree_min(sent.root, &sentinel);
         node;
         node = ngx_rbtree_next(&sent, node))
    {
        h = ngx_rbtree_data(node, ngx_http_flash_gate_hold_t, node);
        h->heard = ngx_http_flash_gate_worker.heard;

        if (flash_send(fd, &h->ask) == -1) {
            ngx_http_flash_gate_drop(ngx_http_flash_gate_failed, ngx_errno);
            return;
        }
    }
}


void
ngx_http_flash_gate_reply(flash_reply_t *reply)
{
    ngx_http_flash_gate_hold_t  *h;

    h = ngx_http_flash_gate_find(reply->id);

    if (h == NULL) {
        /* the reply to a request that was withdrawn */
        return;
    }

    ngx_http_flash_gate_forget(h);

    switch (reply->kind) {

    case FLASH_READY:
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_READY, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_READY);
        return;

    case FLASH_BUSY:
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_BUSY, 1);
        ngx_http_flash_gate_busy(h, reply->value);
        return;

    default: /* FLASH_ERRNO */

        if (reply->value == ETIMEDOUT) {
            ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LATE, 1);
            ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_LATE);
            return;
        }

        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_ERRNO, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_FAILED);
    }
}


/*
 * NGX_OK: the hold will be answered.  NGX_AGAIN: the socket is full, to be
 * treated like BUSY.  NGX_DECLINED: the backend cannot be asked.
 */

ngx_int_t
ngx_http_flash_gate_send(ngx_http_flash_gate_hold_t *h)
{
    ngx_int_t  rc;

    if (!ngx_http_flash_gate_worker.connected
        && !ngx_http_flash_gate_worker.resuming)
    {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_ABSENT, 1);
        return NGX_DECLINED;
    }

    if (++last_id == 0) {
        /* messages about no request have the id 0 */
        last_id = 1;
    }

    h->ask.id = last_id;

    rc = ngx_http_flash_gate_worker.resuming ? ngx_http_flash_gate_check(h)
                          : ngx_http_flash_gate_try(h);

    if (rc == NGX_OK) {
        h->node.key = h->ask.id;
        h->heard = ngx_http_flash_gate_worker.heard;
        ngx_rbtree_insert(&sent, &h->node);
    }

    return rc;
}


/* Whether a hold that is sent later has a valid message. */

static ngx_int_t
ngx_http_flash_gate_check(ngx_http_flash_gate_hold_t *h)
{
    unsigned char  bytes[FLASH_MESSAGE_MAX];

    if (flash_encode(&h->ask, bytes) != 0) {
        return NGX_OK;
    }

    ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_UNTESTABLE, 1);
    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_flash_gate_try(ngx_http_flash_gate_hold_t *h)
{
    ngx_err_t  err;

    if (flash_send(ngx_http_flash_gate_worker.connection->fd, &h->ask) != -1) {
        return NGX_OK;
    }

    err = ngx_errno;

    switch (err) {

    case EAGAIN:
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_FULL, 1);
        return NGX_AGAIN;

    case EINVAL:
        /* a name that is too long: nginx will find out */
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_UNTESTABLE, 1);
        return NGX_DECLINED;

    default:
        ngx_http_flash_gate_drop(ngx_http_flash_gate_closed, err);

        if (ngx_http_flash_gate_worker.resuming) {
            return NGX_OK;
        }

        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_ABSENT, 1);
        return NGX_DECLINED;
    }
}


void
ngx_http_flash_gate_cancel(ngx_http_flash_gate_hold_t *h)
{
    uint32_t  id;

    id = h->ask.id;
    ngx_http_flash_gate_forget(h);

    if (ngx_http_flash_gate_worker.connected
        && flash_send_cancel(ngx_http_flash_gate_worker.connection->fd, id)
           == -1
        && ngx_errno != EAGAIN)
    {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_closed, ngx_errno);
    }
}


/*
 * The backend has let a deadline pass.  Its reply may have arrived already:
 * timers run late in a busy worker.  A backend that has sent other messages
 * since it was asked is late only with this one; a backend that has sent
 * nothing is hung, and its connection ends for all holds.
 */

void
ngx_http_flash_gate_overdue(ngx_http_flash_gate_hold_t *h)
{
    uint32_t  id;

    id = h->ask.id;

    if (ngx_http_flash_gate_worker.connection) {
        ngx_http_flash_gate_read(ngx_http_flash_gate_worker.connection->read);

        if (ngx_http_flash_gate_find(id) != h) {
            /* answered; the request may have ended */
            return;
        }
    }

    if (ngx_http_flash_gate_worker.connection
        && ngx_http_flash_gate_worker.heard != h->heard)
    {
        ngx_http_flash_gate_cancel(h);
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LATE, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_LATE);
        return;
    }

    if (ngx_http_flash_gate_worker.connection) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_silent, 0);
    }

    /* a worker that quits must not end before the posted event */
    ngx_add_timer(&h->timer, NGX_HTTP_FLASH_GATE_RELEASE_MS);
}


/*
 * NGX_OK: the backend closes the file last.  NGX_AGAIN: the socket is full.
 * NGX_DECLINED: there is no backend; the connection's own events find out why.
 */

ngx_int_t
ngx_http_flash_gate_send_close(ngx_fd_t fd)
{
    if (!ngx_http_flash_gate_worker.connected) {
        return NGX_DECLINED;
    }

    if (flash_send_close(ngx_http_flash_gate_worker.connection->fd, fd) == 0) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_CLOSES, 1);
        return NGX_OK;
    }

    if (ngx_errno == EAGAIN) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_FULL, 1);
        return NGX_AGAIN;
    }

    return NGX_DECLINED;
}


static ngx_http_flash_gate_hold_t *
ngx_http_flash_gate_find(uint32_t id)
{
    ngx_rbtree_node_t  *node;

    node = sent.root;

    while (node != &sentinel) {

        if (node->key == id) {
            return ngx_rbtree_data(node, ngx_http_flash_gate_hold_t, node);
        }

        node = (id < node->key) ? node->left : node->right;
    }

    return NULL;
}


static void
ngx_http_flash_gate_forget(ngx_http_flash_gate_hold_t *h)
{
    ngx_rbtree_delete(&sent, &h->node);
}
