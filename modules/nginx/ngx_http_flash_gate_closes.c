
/*
 * The last close of a deleted file frees its blocks, which can wait for the
 * disk: the backend gets a descriptor, so that nginx's is not the last.
 * Called by _contents.c and _pins.c before they close a file.
 *
 * While the socket is full, up to 64 files stay open here and are sent again
 * by a timer, which does not keep a quitting worker alive.  Without a backend
 * they are closed, as nginx does without the gate.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_CLOSES_MAX  64
#define NGX_HTTP_FLASH_GATE_CLOSES_MS   20


static void ngx_http_flash_gate_closes_retry(ngx_event_t *ev);


static ngx_fd_t     unsent[NGX_HTTP_FLASH_GATE_CLOSES_MAX];
static ngx_uint_t   nunsent;
static ngx_event_t  retry;


void
ngx_http_flash_gate_closes_init(ngx_log_t *log)
{
    nunsent = 0;

    ngx_http_flash_gate_event(&retry, ngx_http_flash_gate_closes_retry, log);
}


void
ngx_http_flash_gate_closes_exit(void)
{
    while (nunsent) {
        (void) close(unsent[--nunsent]);
    }
}


/* The caller closes its descriptor afterwards. */

void
ngx_http_flash_gate_close_elsewhere(ngx_fd_t fd)
{
    ngx_fd_t  copy;

    if (ngx_http_flash_gate_send_close(fd) != NGX_AGAIN
        || nunsent == NGX_HTTP_FLASH_GATE_CLOSES_MAX)
    {
        return;
    }

    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (copy == -1) {
        return;
    }

    unsent[nunsent++] = copy;

    if (!retry.timer_set) {
        ngx_add_timer(&retry, NGX_HTTP_FLASH_GATE_CLOSES_MS);
    }
}


static void
ngx_http_flash_gate_closes_retry(ngx_event_t *ev)
{
    while (nunsent) {

        if (ngx_http_flash_gate_send_close(unsent[nunsent - 1]) == NGX_AGAIN) {
            ngx_add_timer(ev, NGX_HTTP_FLASH_GATE_CLOSES_MS);
            return;
        }

        (void) close(unsent[--nunsent]);
    }
}
