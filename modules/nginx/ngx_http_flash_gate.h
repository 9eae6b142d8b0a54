
/*
 * The gate: a request waits, without blocking its worker, until the names and
 * the contents that nginx is about to touch are in memory.
 *
 * The files:
 *   _module.c    directives, and how the parts are put into nginx
 *   _names.c     the phase handlers: names are tested before nginx opens them
 *   _pins.c      descriptors that keep names in memory
 *   _contents.c  the body filter before the copy filter: windows of files
 *   _windows.c   one window: whether it is in memory, and asking for it
 *   _last.c      the body filter before the write filter: what slow clients
 *                have left may have been evicted meanwhile
 *   _closes.c    deleted files, whose last close is left to the backend
 *   _hold.c      one request's wait for one reply
 *   _sent.c      holds that have been sent, and the replies to them
 *   _backend.c   the worker's connection to `flash backend`
 *   _status.c    counters, variables, the status page
 *   _mounts.c    which file systems a root must not be on
 */

#ifndef _NGX_HTTP_FLASH_GATE_H_INCLUDED_
#define _NGX_HTTP_FLASH_GATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "flash_client.h"


/* a bit of r->buffered that no module of nginx uses */
#define NGX_HTTP_FLASH_GATE_BUFFERED  0x08

#define NGX_HTTP_FLASH_GATE_NAMES     8
#define NGX_HTTP_FLASH_GATE_ASKS      3
#define NGX_HTTP_FLASH_GATE_FORCED    4096

/* A range tested this short a time ago is not tested again. */
#define NGX_HTTP_FLASH_GATE_RECENT_MS  50

/* Closing a deleted file below this size does not take long. */
#define NGX_HTTP_FLASH_GATE_LARGE_BYTES  (1024 * 1024)


/* The counters, in the order of the status page. */

typedef enum {
    NGX_HTTP_FLASH_GATE_REQUESTS = 0,
    NGX_HTTP_FLASH_GATE_HELD,
    NGX_HTTP_FLASH_GATE_NAMES_ASKED,
    NGX_HTTP_FLASH_GATE_WINDOWS_ASKED,
    NGX_HTTP_FLASH_GATE_LOOKS_ASKED,
    NGX_HTTP_FLASH_GATE_ASKED_AGAIN,
    NGX_HTTP_FLASH_GATE_READY,
    NGX_HTTP_FLASH_GATE_ERRNO,
    NGX_HTTP_FLASH_GATE_BUSY,
    NGX_HTTP_FLASH_GATE_LATE,
    NGX_HTTP_FLASH_GATE_REFUSED,
    NGX_HTTP_FLASH_GATE_PASSED_ABSENT,
    NGX_HTTP_FLASH_GATE_FULL,
    NGX_HTTP_FLASH_GATE_PASSED_LOST,
    NGX_HTTP_FLASH_GATE_PASSED_UNTESTABLE,
    NGX_HTTP_FLASH_GATE_WITHDRAWN,
    NGX_HTTP_FLASH_GATE_CLOSES,
    NGX_HTTP_FLASH_GATE_CONNECTS,
    NGX_HTTP_FLASH_GATE_LOSSES,
    NGX_HTTP_FLASH_GATE_WAIT_MS,
    NGX_HTTP_FLASH_GATE_COUNTERS
} ngx_http_flash_gate_counter_e;


typedef struct {
    ngx_str_t            backend;
    ngx_shm_zone_t      *zone;
    ngx_uint_t           used;         /* a location has the gate on */
} ngx_http_flash_gate_main_conf_t;


typedef struct {
    ngx_flag_t           enable;
    ngx_flag_t           force;
    ngx_uint_t           untestable;
    ngx_msec_t           timeout;
    size_t               window;
    ngx_array_t         *names;        /* ngx_http_complex_value_t, or NULL */
    u_char              *root;         /* whose file system is fit */
} ngx_http_flash_gate_loc_conf_t;

#define NGX_HTTP_FLASH_GATE_ASK       0
#define NGX_HTTP_FLASH_GATE_PASS      1


/* How a hold stands.  All states from READY on are answers. */

typedef enum {
    NGX_HTTP_FLASH_GATE_IDLE = 0,
    NGX_HTTP_FLASH_GATE_ASKED,         /* the request has been sent */
    NGX_HTTP_FLASH_GATE_RETRY,         /* busy or full, is sent again */
    NGX_HTTP_FLASH_GATE_IS_READY,
    NGX_HTTP_FLASH_GATE_IS_FAILED,     /* nginx will find the error itself */
    NGX_HTTP_FLASH_GATE_IS_BUSY,       /* only names: hold->retry_after_ms */
    NGX_HTTP_FLASH_GATE_IS_LATE,       /* the deadline has passed */
    NGX_HTTP_FLASH_GATE_IS_OPEN        /* no backend: go on */
} ngx_http_flash_gate_state_e;


typedef struct ngx_http_flash_gate_hold_s  ngx_http_flash_gate_hold_t;

typedef void (*ngx_http_flash_gate_resume_pt)(ngx_http_flash_gate_hold_t *h);

/* One thing that a request waits for: a name or a window. */

struct ngx_http_flash_gate_hold_s {
    ngx_rbtree_node_t               node;      /* by id, while ASKED */
    ngx_event_t                     timer;
    ngx_http_flash_gate_state_e     state;
    ngx_http_request_t             *request;
    ngx_http_flash_gate_resume_pt   resume;
    flash_request_t                 ask;
    ngx_msec_t                      deadline;
    ngx_msec_t                      since;     /* of this ask */
    ngx_msec_t                      full_ms;   /* wait for a full socket */
    ngx_uint_t                      heard;     /* messages before this ask */
    ngx_uint_t                      asks;
    ngx_msec_t                      retry_after_ms;
    unsigned                        retry:1;   /* ask again when busy */
    unsigned                        ahead:1;   /* asked before it was needed */
};


/* A name that is in memory, and stays there. */

typedef struct {
    ngx_fd_t                        fd;
    uint32_t                        hash;      /* of the path */
    size_t                          length;    /* 0: not in the table */
    ngx_uint_t                      users;
    ngx_msec_t                      since;
} ngx_http_flash_gate_pin_t;


typedef struct {
    ngx_http_request_t             *request;

    /* names */
    ngx_uint_t                      index;     /* of the name in turn */
    ngx_http_flash_gate_hold_t     *hold;
    ngx_str_t                       uri;       /* that was tested last */
    ngx_http_flash_gate_pin_t      *pins[NGX_HTTP_FLASH_GATE_NAMES];
    ngx_uint_t                      npins;

    /* contents */
    ngx_http_upstream_t            *upstream;  /* whose body is not gated */
    ngx_chain_t                    *in;
    ngx_chain_t                    *free;
    ngx_chain_t                    *busy;

    /* the last look */
    ngx_http_flash_gate_hold_t     *look;
    ngx_msec_t                      tested;    /* when contents were */

    ngx_msec_t                      waited;
    ngx_msec_t                      named;     /* waited for names */
    unsigned                        naming:1;  /* names are under test */
    unsigned                        detach:1;  /* the cleanup is in place */
    unsigned                        prepared:1;
    unsigned                        closing:1; /* looks for deleted files */
    unsigned                        was_held:1;
    unsigned                        was_passed:1;
    unsigned                        was_busy:1;
    unsigned                        was_late:1;
    unsigned                        refused:1; /* Retry-After is set */
} ngx_http_flash_gate_ctx_t;


/* The worker's connection, and its part of the status page. */

typedef struct {
    ngx_connection_t               *connection; /* NULL: down */
    ngx_uint_t                      connected;  /* it has been welcomed */
    ngx_uint_t                      resuming;   /* holds wait for that */
    ngx_uint_t                      heard;      /* messages received */
    ngx_uint_t                      waiting;    /* holds */
} ngx_http_flash_gate_worker_t;


/* Why a connection ended. */

typedef enum {
    ngx_http_flash_gate_no_fault = 0,
    ngx_http_flash_gate_absent,
    ngx_http_flash_gate_refused,
    ngx_http_flash_gate_garbage,
    ngx_http_flash_gate_closed,
    ngx_http_flash_gate_silent,
    ngx_http_flash_gate_failed
} ngx_http_flash_gate_fault_e;


/* _hold.c */

ngx_http_flash_gate_hold_t *ngx_http_flash_gate_hold(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_hold_t **slot,
    ngx_http_flash_gate_resume_pt resume);
ngx_uint_t ngx_http_flash_gate_pending(ngx_http_flash_gate_hold_t *h);
ngx_int_t ngx_http_flash_gate_ask(ngx_http_flash_gate_ctx_t *ctx,
    ngx_http_flash_gate_hold_t *h, ngx_uint_t counter);
void ngx_http_flash_gate_answer(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_state_e state);
void ngx_http_flash_gate_busy(ngx_http_flash_gate_hold_t *h,
    ngx_msec_t retry_after_ms);
void ngx_http_flash_gate_withdraw(ngx_http_flash_gate_hold_t *h);

/* _sent.c */

void ngx_http_flash_gate_sent_init(ngx_log_t *log);
void ngx_http_flash_gate_release_sent(void);
void ngx_http_flash_gate_resend(void);
void ngx_http_flash_gate_reply(flash_reply_t *reply);
ngx_int_t ngx_http_flash_gate_send(ngx_http_flash_gate_hold_t *h);
void ngx_http_flash_gate_cancel(ngx_http_flash_gate_hold_t *h);
void ngx_http_flash_gate_overdue(ngx_http_flash_gate_hold_t *h);
ngx_int_t ngx_http_flash_gate_send_close(ngx_fd_t fd);

/* _backend.c */

ngx_int_t ngx_http_flash_gate_init_process(ngx_cycle_t *cycle);
void ngx_http_flash_gate_exit_process(ngx_cycle_t *cycle);
void ngx_http_flash_gate_event(ngx_event_t *ev, ngx_event_handler_pt handler,
    ngx_log_t *log);
void ngx_http_flash_gate_read(ngx_event_t *rev);
void ngx_http_flash_gate_drop(ngx_http_flash_gate_fault_e fault,
    ngx_err_t err);

/* _closes.c */

void ngx_http_flash_gate_closes_init(ngx_log_t *log);
void ngx_http_flash_gate_closes_exit(void);
void ngx_http_flash_gate_close_elsewhere(ngx_fd_t fd);

/* _names.c */

ngx_int_t ngx_http_flash_gate_first_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_flash_gate_last_handler(ngx_http_request_t *r);

/* _pins.c */

void ngx_http_flash_gate_pins_init(ngx_log_t *log);
void ngx_http_flash_gate_pins_exit(void);
flash_residency_t ngx_http_flash_gate_pin(ngx_pool_t *pool, ngx_str_t *path,
    ngx_http_flash_gate_pin_t **pin);
void ngx_http_flash_gate_release_pin(ngx_http_flash_gate_pin_t *p);
void ngx_http_flash_gate_unpin(ngx_http_flash_gate_ctx_t *ctx);

/* _contents.c */

void ngx_http_flash_gate_contents_init(void);
ngx_uint_t ngx_http_flash_gate_in_file(ngx_buf_t *b);
off_t ngx_http_flash_gate_turn(ngx_http_request_t *r);

/* _windows.c */

/* The range that nginx will read next: at most a window. */

typedef struct {
    ngx_file_t                     *file;
    off_t                           pos;
    off_t                           size;
} ngx_http_flash_gate_range_t;

void ngx_http_flash_gate_window(ngx_http_request_t *r, ngx_buf_t *b,
    ngx_http_flash_gate_range_t *range);
ngx_int_t ngx_http_flash_gate_test(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_range_t *range);
flash_residency_t ngx_http_flash_gate_residency(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_range_t *range);
ngx_uint_t ngx_http_flash_gate_asked(ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_range_t *range);
ngx_int_t ngx_http_flash_gate_need(ngx_http_request_t *r,
    ngx_http_flash_gate_ctx_t *ctx, ngx_http_flash_gate_hold_t *h,
    ngx_http_flash_gate_range_t *range);

/* _status.c */

void ngx_http_flash_gate_count(ngx_uint_t counter, ngx_uint_t n);
ngx_http_flash_gate_ctx_t *ngx_http_flash_gate_get_ctx(ngx_http_request_t *r);
ngx_http_flash_gate_ctx_t *ngx_http_flash_gate_make_ctx(ngx_http_request_t *r);
void ngx_http_flash_gate_leave(ngx_http_request_t *r);
ngx_int_t ngx_http_flash_gate_add_variables(ngx_conf_t *cf);
char *ngx_http_flash_gate_status(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_shm_zone_t *ngx_http_flash_gate_add_zone(ngx_conf_t *cf);
void ngx_http_flash_gate_use_zone(ngx_shm_zone_t *zone);

/* _mounts.c */

ngx_str_t *ngx_http_flash_gate_unfit_mount(ngx_conf_t *cf, ngx_str_t *path);


extern ngx_http_flash_gate_worker_t  ngx_http_flash_gate_worker;

extern ngx_module_t  ngx_http_flash_gate_module;
extern ngx_module_t  ngx_http_flash_gate_last_module;


#endif /* _NGX_HTTP_FLASH_GATE_H_INCLUDED_ */
