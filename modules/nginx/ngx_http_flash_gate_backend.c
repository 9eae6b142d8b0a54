
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
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_PAUSE_MS      10
#define NGX_HTTP_FLASH_GATE_PAUSE_MAX_MS  1000
#define NGX_HTTP_FLASH_GATE_LASTED_MS     1000
#define NGX_HTTP_FLASH_GATE_WELCOME_MS    5000


typedef struct {
    ngx_str_t                     path;
    ngx_http_flash_gate_fault_e   fault;      /* logged last */
    ngx_msec_t                    welcomed;   /* when it last connected */
    ngx_msec_t                    pause;      /* before the next connection */
    ngx_event_t                   reconnect;
} ngx_http_flash_gate_backend_t;


static void ngx_http_flash_gate_connect(ngx_event_t *ev);
static void ngx_http_flash_gate_write(ngx_event_t *wev);
static void ngx_http_flash_gate_message(flash_reply_t *reply);
static void ngx_http_flash_gate_welcome(flash_reply_t *reply);


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

    ngx_http_flash_gate_event(&backend.reconnect, ngx_http_flash_gate_connect,
                              cycle->log);
    ngx_http_flash_gate_sent_init(cycle->log);
    ngx_http_flash_gate_connect(&backend.reconnect);

    return NGX_OK;
}


void
ngx_http_flash_gate_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_flash_gate_pins_exit();
    ngx_http_flash_gate_closes_exit();

    if (ngx_http_flash_gate_worker.connection) {
        ngx_close_connection(ngx_http_flash_gate_worker.connection);
        ngx_http_flash_gate_worker.connection = NULL;
        ngx_http_flash_gate_worker.connected = 0;
    }
}


/*
 * An event of no connection, whose timer does not keep a quitting worker
 * alive.  Debug logs of timers print the descriptor of its connection.
 */

void
ngx_http_flash_gate_event(ngx_event_t *ev, ngx_event_handler_pt handler,
    ngx_log_t *log)
{
    static ngx_connection_t  nobody;

    nobody.fd = (ngx_socket_t) -1;

    ngx_memzero(ev, sizeof(ngx_event_t));

    ev->handler = handler;
    ev->data = &nobody;
    ev->log = log;
    ev->cancelable = 1;
}


/* The reconnect timer, which also bounds the wait for the backend's HELLO. */

static void
ngx_http_flash_gate_connect(ngx_event_t *ev)
{
    int                s;
    flash_hello_t      hello;
    ngx_connection_t  *c;

    if (ngx_http_flash_gate_worker.connection) {

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

    ngx_http_flash_gate_worker.connection = c;

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


void
ngx_http_flash_gate_drop(ngx_http_flash_gate_fault_e fault, ngx_err_t err)
{
    ngx_http_flash_gate_worker.resuming = 0;

    if (ngx_http_flash_gate_worker.connected) {
        ngx_http_flash_gate_count(NGX_HTTP_FLASH_GATE_LOSSES, 1);
        ngx_http_flash_gate_worker.connected = 0;

        if (ngx_current_msec - backend.welcomed
            >= NGX_HTTP_FLASH_GATE_LASTED_MS
            && fault == ngx_http_flash_gate_closed)
        {
            backend.pause = NGX_HTTP_FLASH_GATE_PAUSE_MS;
            ngx_http_flash_gate_worker.resuming = 1;
        }
    }

    if (ngx_http_flash_gate_worker.connection) {
        ngx_close_connection(ngx_http_flash_gate_worker.connection);
        ngx_http_flash_gate_worker.connection = NULL;
    }

    if (ngx_http_flash_gate_worker.resuming) {
        ngx_add_timer(&backend.reconnect, 0);
        return;
    }

    ngx_http_flash_gate_fault(fault, err);

    ngx_http_flash_gate_release_sent();

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


void
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

        ngx_http_flash_gate_worker.heard++;

        if (ngx_http_flash_gate_worker.connected) {
            ngx_http_flash_gate_message(&reply);

        } else {
            ngx_http_flash_gate_welcome(&reply);
        }

        if (ngx_http_flash_gate_worker.connection != c) {
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

    if (ngx_http_flash_gate_worker.resuming) {
        ngx_http_flash_gate_worker.resuming = 0;
        ngx_http_flash_gate_resend();
    }
}


static void
ngx_http_flash_gate_message(flash_reply_t *reply)
{
    if (reply->kind == FLASH_HELLO_REPLY) {
        ngx_http_flash_gate_drop(ngx_http_flash_gate_garbage, 0);
        return;
    }

    if (backend.fault != ngx_http_flash_gate_no_fault) {
        ngx_http_flash_gate_works();
    }

    ngx_http_flash_gate_reply(reply);
}
