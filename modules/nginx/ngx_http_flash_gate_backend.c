
/*
 * The worker's connection to `flash backend`.
 *
 * A connection that has lasted and is closed by the backend is made again at
 * once, as at each reload of the backend; holds wait for it and are sent
 * again.  Whatever else goes wrong, the worker goes on as if there were no
 * gate: every hold is answered "open" at once, the cause is logged once, and
 * the worker connects again after a second, or if the backend is gone after
 * pauses that grow from 10 ms to a second, by a timer that does not keep a
 * quitting worker alive.
 *
 * Holds are answered from a posted event when the connection ends, since its
 * end can be found in the middle of another request's handlers.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_PAUSE_MS      10
#define NGX_HTTP_FLASH_GATE_PAUSE_MAX_MS  1000
#define NGX_HTTP_FLASH_GATE_LASTED_MS     1000
#define NGX_HTTP_FLASH_GATE_WELCOME_MS    5000


typedef enum {
    ngx_http_flash_gate_no_fault = 0,
    ngx_http_flash_gate_absent,
    ngx_http_flash_gate_refused,
    ngx_http_flash_gate_garbage,
    ngx_http_flash_gate_closed,
    ngx_http_flash_gate_silent,
    ngx_http_flash_gate_failed
} ngx_http_flash_gate_fault_e;


typedef struct {
    ngx_str_t                     path;
    ngx_connection_t             *connection; /* NULL: down */
    ngx_http_flash_gate_fault_e   fault;      /* logged last */
    uint32_t                      id;
    ngx_uint_t                    heard;      /* messages received */
    ngx_msec_t                    welcomed;   /* when it last connected */
    ngx_msec_t                    pause;      /* before the next connection */
    ngx_uint_t                    resuming;   /* holds wait for its welcome */
    ngx_rbtree_t                  holds;
    ngx_rbtree_node_t             sentinel;
    ngx_event_t                   reconnect;
    ngx_event_t                   release;

    /* debug logs of timers print the descriptor of an event's connection */
    ngx_connection_t              nobody;
} ngx_http_flash_gate_backend_t;


static void ngx_http_flash_gate_connect(ngx_event_t *ev);
static void ngx_http_flash_gate_drop(ngx_http_flash_gate_fault_e fault,
    ngx_err_t err);
static void ngx_http_flash_gate_resend(void);
static void ngx_http_flash_gate_release(ngx_event_t *ev);
static void ngx_http_flash_gate_read(ngx_event_t *rev);
static void ngx_http_flash_gate_write(ngx_event_t *wev);
static void ngx_http_flash_gate_welcome(flash_reply_t *reply);
static void ngx_http_flash_gate_reply(flash_reply_t *reply);
static ngx_int_t ngx_http_flash_gate_check(ngx_http_flash_gate_hold_t *h);
static ngx_int_t ngx_http_flash_gate_try(ngx_http_flash_gate_hold_t *h);
static ngx_http_flash_gate_hold_t *ngx_http_flash_gate_find(uint32_t id);
static void ngx_http_flash_gate_forget(ngx_http_flash_gate_hold_t *h);


/* Connected: the backend has answered HELLO on backend.connection. */
ngx_http_flash_gate_worker_t  ngx_http_flash_gate_worker;

static ngx_http_flash_gate_backend_t  backend;


/* By ngx_http_flash_gate_fault_e. */

static char  *ngx_http_flash_gate_faults[] = {
    "",
    "cannot be reached: is \"flash backend\" running?",
    "refused this worker",
    "sent a message that is none of the protocol",
    "closed the connection",
    "does not answer",
    "connection failed"
};


ngx_int_t
ngx_http_flash_gate_init_process(ngx_cycle_t *cycle)
{
    ngx_http_flash_gate_main_conf_t  *gmcf;

    ngx_memzero(&backend, sizeof(ngx_http_flash_gate_backend_t));
    ngx_memzero(&ngx_http_flash_gate_worker,
                sizeof(ngx_http_flash_gate_worker_t));
    ngx_http_flash_gate_pins_init(cycle->log);
    ngx_http_flash_gate_closes_init(cycle->log);

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    gmcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_flash_gate_module);
    if (gmcf == NULL || !gmcf->used) {
        return NGX_OK;
    }

    ngx_http_flash_gate_use_zone(gmcf->zone);

    backend.path = gmcf->backend;
    backend.pause = NGX_HTTP_FLASH_GATE_PAUSE_MS;
    backend.nobody.fd = (ngx_socket_t) -1;

    ngx_rbtree_init(&backend.holds, &backend.sentinel,
                    ngx_rbtree_insert_value);

    backend.reconnect.handler = ngx_http_flash_gate_connect;
    backend.reconnect.data = &backend.nobody;
    backend.reconnect.log = cycle->log;
    backend.reconnect.cancelable = 1;
    backend.release.handler = ngx_http_flash_gate_release;
    backend.release.data = &backend.nobody;
    backend.release.log = cycle->log;

    ngx_http_flash_gate_connect(&backend.reconnect);

    return NGX_OK;
}


void
ngx_http_flash_gate_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_flash_gate_pins_exit();
    ngx_http_flash_gate_closes_exit();

    if (backend.connection) {
        ngx_close_connection(backend.connection);
        backend.connection = NULL;
        ngx_http_flash_gate_worker.connected = 0;
    }
}


/* The reconnect timer, which also bounds the wait for the backend's HELLO. */

static void
ngx_http_flash_gate_connect(ngx_event_t *ev)
{
    int                s;
    flash_hello_t      hello;
    ngx_connection_t  *c;

    if (backend.connection) {

        if (!ngx_http_flash_gate_worker.connected) {
            ngx_http_flash_gate_drop(ngx_http_flash_gate_silent, 0);
        }

        return;
    }

    hello.name = "nginx";
    hello.group = (ngx_process == NGX_PROCESS_SINGLE) ? (uint64_t) ngx_pid
                                                      : (uint64_t) ngx_parent;
    hello.waiters_max = 0;

    s = flash_connect((char *) backend.path.data, &hello);

    if (s == -1) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_absent, ngx_errno);
        return;
    }

    c = ngx_get_connection(s, ngx_cycle->log);

    if (c == NULL) {
        (void) close(s);
        ngx_http_flash_gate_drop(ngx_http_flash_gate_failed, 0);
        return;
    }

    backend.connection = c;

    c->log = ngx_cycle->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->read->handler = ngx_http_flash_gate_read;
    c->write->handler = ngx_http_flash_gate_write;

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_failed, 0);
        return;
    }

    ngx_add_timer(&backend.reconnect, NGX_HTTP_FLASH_GATE_WELCOME_MS);
}


/* Logs a cause once, until the backend works again. */

static void
ngx_http_flash_gate_fault(ngx_http_flash_gate_fault_e fault, ngx_err_t err)
{
    ngx_uint_t  level;

    if (backend.fault == fault) {
        return;
    }

    backend.fault = fault;

    level = (fault == ngx_http_flash_gate_closed) ? NGX_LOG_WARN
                                                  : NGX_LOG_ERR;

    ngx_log_error(level, ngx_cycle->log, err,
                  "flash gate: backend \"%V\" %s; requests are served "
                  "without the gate until it works",
                  &backend.path, ngx_http_flash_gate_faults[fault]);
}


static void
ngx_http_flash_gate_works(void)
{
    backend.fault = ngx_http_flash_gate_no_fault;

    ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                  "flash gate: backend \"%V\" works again", &backend.path);
}


static void
ngx_http_flash_gate_drop(ngx_http_flash_gate_fault_e fault, ngx_err_t err)
{
    backend.resuming = 0;

    if (ngx_http_flash_gate_worker.connected) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LOSSES, 1);
        ngx_http_flash_gate_worker.connected = 0;

        if (ngx_current_msec - backend.welcomed
            >= NGX_HTTP_FLASH_GATE_LASTED_MS
            && fault == ngx_http_flash_gate_closed)
        {
            backend.pause = NGX_HTTP_FLASH_GATE_PAUSE_MS;
            backend.resuming = 1;
        }
    }

    if (backend.connection) {
        ngx_close_connection(backend.connection);
        backend.connection = NULL;
    }

    if (backend.resuming) {
        ngx_add_timer(&backend.reconnect, 0);
        return;
    }

    ngx_http_flash_gate_fault(fault, err);

    if (backend.holds.root != &backend.sentinel) {
        ngx_post_event(&backend.release, &ngx_posted_events);
    }

    /* one that hangs or is of another kind must not hold requests for long */

    if (fault != ngx_http_flash_gate_closed
        && fault != ngx_http_flash_gate_absent)
    {
        backend.pause = NGX_HTTP_FLASH_GATE_PAUSE_MAX_MS;
    }

    ngx_add_timer(&backend.reconnect, backend.pause);

    backend.pause = ngx_min(2 * backend.pause,
                            NGX_HTTP_FLASH_GATE_PAUSE_MAX_MS);
}


/* Sends the holds again that the last connection has not answered. */

static void
ngx_http_flash_gate_resend(void)
{
    ngx_rbtree_node_t           *node;
    ngx_http_flash_gate_hold_t  *h;

    if (backend.holds.root == &backend.sentinel) {
        return;
    }

    for (node = ngx_rbtree_min(backend.holds.root, &backend.sentinel);
         node;
         node = ngx_rbtree_next(&backend.holds, node))
    {
        h = ngx_rbtree_data(node, ngx_http_flash_gate_hold_t, node);
        h->heard = backend.heard;

        if (flash_send(backend.connection->fd, &h->ask) == -1) {
            ngx_http_flash_gate_drop(ngx_http_flash_gate_failed, ngx_errno);
            return;
        }
    }
}


static void
ngx_http_flash_gate_release(ngx_event_t *ev)
{
    ngx_rbtree_node_t           *node;
    ngx_http_flash_gate_hold_t  *h;

    while (!ngx_http_flash_gate_worker.connected && !backend.resuming
           && backend.holds.root != &backend.sentinel)
    {
        node = ngx_rbtree_min(backend.holds.root, &backend.sentinel);
        h = ngx_rbtree_data(node, ngx_http_flash_gate_hold_t, node);

        ngx_http_flash_gate_forget(h);
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_ABSENT, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_OPEN);
    }
}


static void
ngx_http_flash_gate_read(ngx_event_t *rev)
{
    int                n;
    flash_reply_t      reply;
    ngx_connection_t  *c;

    c = rev->data;

    for ( ;; ) {
        n = flash_receive(c->fd, &reply);

        if (n == -1) {
            ngx_http_flash_gate_drop(ngx_errno == EPROTO
                                     ? ngx_http_flash_gate_garbage
                                     : ngx_http_flash_gate_closed,
                                     ngx_errno == EPROTO ? 0 : ngx_errno);
            return;
        }

        if (n == 0) {
            rev->ready = 0;

            if (ngx_handle_read_event(rev, 0) != NGX_OK) {
                ngx_http_flash_gate_drop(ngx_http_flash_gate_failed, 0);
            }

            return;
        }

        backend.heard++;

        if (ngx_http_flash_gate_worker.connected) {
            ngx_http_flash_gate_reply(&reply);

        } else {
            ngx_http_flash_gate_welcome(&reply);
        }

        if (backend.connection != c) {
            return;
        }
    }
}


static void
ngx_http_flash_gate_write(ngx_event_t *wev)
{
    /* a request that finds the socket full is sent again by its timer */
}


static void
ngx_http_flash_gate_welcome(flash_reply_t *reply)
{
    static char  *reasons[] = {
        "it speaks another version of the protocol",
        "it does not allow the user of the workers, see its option --allow",
        "it has no room for another connection"
    };

    if (reply->kind != FLASH_HELLO_REPLY) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_garbage, 0);
        return;
    }

    if (reply->status != FLASH_WELCOME) {

        if (backend.fault != ngx_http_flash_gate_refused) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "flash gate: backend \"%V\" refuses: %s",
                          &backend.path,
                          reply->status <= FLASH_NO_ROOM
                          ? reasons[reply->status - 1] : "unknown status");
        }

        ngx_http_flash_gate_drop(ngx_http_flash_gate_refused, 0);
        return;
    }

    ngx_http_flash_gate_worker.connected = 1;
    backend.welcomed = ngx_current_msec;
    ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_CONNECTS, 1);

    if (backend.reconnect.timer_set) {
        ngx_del_timer(&backend.reconnect);
    }

    /* other faults can come back with the first request */

    if (backend.fault == ngx_http_flash_gate_absent
        || backend.fault == ngx_http_flash_gate_refused
        || backend.fault == ngx_http_flash_gate_failed)
    {
        ngx_http_flash_gate_works();
    }

    if (backend.resuming) {
        backend.resuming = 0;
        ngx_http_flash_gate_resend();
    }
}


static void
ngx_http_flash_gate_reply(flash_reply_t *reply)
{
    ngx_http_flash_gate_hold_t  *h;

    if (reply->kind == FLASH_HELLO_REPLY) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_garbage, 0);
        return;
    }

    if (backend.fault != ngx_http_flash_gate_no_fault) {
        ngx_http_flash_gate_works();
    }

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

    if (!ngx_http_flash_gate_worker.connected && !backend.resuming) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_PASSED_ABSENT, 1);
        return NGX_DECLINED;
    }

    if (++backend.id == 0) {
        /* messages about no request have the id 0 */
        backend.id = 1;
    }

    h->ask.id = backend.id;

    rc = backend.resuming ? ngx_http_flash_gate_check(h)
                          : ngx_http_flash_gate_try(h);

    if (rc == NGX_OK) {
        h->node.key = h->ask.id;
        h->heard = backend.heard;
        ngx_rbtree_insert(&backend.holds, &h->node);
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

    if (flash_send(backend.connection->fd, &h->ask) != -1) {
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

        if (backend.resuming) {
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
        && flash_send_cancel(backend.connection->fd, id) == -1
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

    if (backend.connection) {
        ngx_http_flash_gate_read(backend.connection->read);

        if (ngx_http_flash_gate_find(id) != h) {
            /* answered; the request may have ended */
            return;
        }
    }

    if (backend.connection && backend.heard != h->heard) {
        ngx_http_flash_gate_cancel(h);
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LATE, 1);
        ngx_http_flash_gate_answer(h, NGX_HTTP_FLASH_GATE_IS_LATE);
        return;
    }

    if (backend.connection) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_silent, 0);
    }

    /* a worker that quits must not end before the posted event */
    ngx_add_timer(&h->timer, NGX_HTTP_FLASH_GATE_PAUSE_MAX_MS);
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

    if (flash_send_close(backend.connection->fd, fd) == 0) {
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

    node = backend.holds.root;

    while (node != &backend.sentinel) {

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
    ngx_rbtree_delete(&backend.holds, &h->node);
}
