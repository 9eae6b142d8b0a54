
/*
 * Pins: O_PATH descriptors, which keep the inodes and the names of files in
 * memory until nginx has opened them.  Called by _names.c before the open and
 * by _contents.c after it.
 *
 * A worker keeps up to 256 pins open for the next requests for the same paths
 * (in sets of four, by the hash of the path), so that a request for a hot
 * file costs no system call here.  A path is looked up again after a second,
 * and a timer closes pins that nobody has used for that long: a deleted file
 * does not hold its blocks for longer than two seconds.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_PINS      256
#define NGX_HTTP_FLASH_GATE_PIN_WAYS  4
#define NGX_HTTP_FLASH_GATE_PIN_PATH  240     /* longer paths are not kept */
#define NGX_HTTP_FLASH_GATE_PIN_MS    1000


static ngx_http_flash_gate_pin_t *ngx_http_flash_gate_pin_set(uint32_t hash);
static ngx_http_flash_gate_pin_t *ngx_http_flash_gate_find_pin(
    ngx_str_t *path, uint32_t hash);
static ngx_http_flash_gate_pin_t *ngx_http_flash_gate_keep_pin(
    ngx_str_t *path, uint32_t hash, ngx_fd_t fd);
static ngx_uint_t ngx_http_flash_gate_close_unused(ngx_msec_t age);
static void ngx_http_flash_gate_sweep(ngx_event_t *ev);
static void ngx_http_flash_gate_close_pin(ngx_http_flash_gate_pin_t *p);


static ngx_http_flash_gate_pin_t  pins[NGX_HTTP_FLASH_GATE_PINS];
static u_char       paths[NGX_HTTP_FLASH_GATE_PINS]
                         [NGX_HTTP_FLASH_GATE_PIN_PATH];
static ngx_event_t  sweep;


void
ngx_http_flash_gate_pins_init(ngx_log_t *log)
{
    ngx_uint_t  i;

    ngx_memzero(pins, sizeof(pins));

    for (i = 0; i < NGX_HTTP_FLASH_GATE_PINS; i++) {
        pins[i].fd = NGX_INVALID_FILE;
    }

    ngx_http_flash_gate_event(&sweep, ngx_http_flash_gate_sweep, log);
}


void
ngx_http_flash_gate_pins_exit(void)
{
    (void) ngx_http_flash_gate_close_unused(0);
}


/*
 * Tests a name.  FLASH_RESIDENT with *pin: the name stays in memory until the
 * pin is released.  FLASH_RESIDENT without: nginx's open will fail, without
 * waiting.
 */

flash_residency_t
ngx_http_flash_gate_pin(ngx_pool_t *pool, ngx_str_t *path,
    ngx_http_flash_gate_pin_t **pin)
{
    int                         fd;
    uint32_t                    hash;
    flash_residency_t           found;
    ngx_http_flash_gate_pin_t  *p;

    hash = ngx_murmur_hash2(path->data, path->len);
    p = ngx_http_flash_gate_find_pin(path, hash);

    if (p && ngx_current_msec - p->since < NGX_HTTP_FLASH_GATE_PIN_MS) {
        p->users++;
        *pin = p;
        return FLASH_RESIDENT;
    }

    *pin = NULL;
    found = flash_test_name((char *) path->data, &fd);

    if (fd == -1 && (ngx_errno == EMFILE || ngx_errno == ENFILE)) {
        /* nginx needs the descriptors more */
        (void) ngx_http_flash_gate_close_unused(0);
        p = NULL;
        found = flash_test_name((char *) path->data, &fd);
    }

    if (fd == -1) {
        return found;
    }

    if (p && p->users) {
        /* out of date: its last user closes it */
        p->length = 0;

    } else if (p) {
        ngx_http_flash_gate_close_pin(p);
    }

    p = ngx_http_flash_gate_keep_pin(path, hash, fd);

    if (p == NULL) {
        p = ngx_pcalloc(pool, sizeof(ngx_http_flash_gate_pin_t));
        if (p == NULL) {
            (void) close(fd);
            return found;
        }

        p->fd = fd;
    }

    p->users++;
    *pin = p;

    return found;
}


void
ngx_http_flash_gate_release_pin(ngx_http_flash_gate_pin_t *p)
{
    p->users--;

    if (p->users == 0 && p->length == 0) {
        ngx_http_flash_gate_close_pin(p);
    }
}


void
ngx_http_flash_gate_unpin(ngx_http_flash_gate_ctx_t *ctx)
{
    while (ctx->npins) {
        ngx_http_flash_gate_release_pin(ctx->pins[--ctx->npins]);
    }
}


static ngx_http_flash_gate_pin_t *
ngx_http_flash_gate_pin_set(uint32_t hash)
{
    return &pins[hash % (NGX_HTTP_FLASH_GATE_PINS
                         / NGX_HTTP_FLASH_GATE_PIN_WAYS)
                 * NGX_HTTP_FLASH_GATE_PIN_WAYS];
}


static ngx_http_flash_gate_pin_t *
ngx_http_flash_gate_find_pin(ngx_str_t *path, uint32_t hash)
{
    ngx_http_flash_gate_pin_t  *p, *end;

    p = ngx_http_flash_gate_pin_set(hash);

    for (end = p + NGX_HTTP_FLASH_GATE_PIN_WAYS; p < end; p++) {

        if (p->fd != NGX_INVALID_FILE
            && p->hash == hash
            && p->length == path->len
            && ngx_memcmp(paths[p - pins], path->data, path->len) == 0)
        {
            return p;
        }
    }

    return NULL;
}


/* NULL: the path is too long, or requests use all pins of its set. */

static ngx_http_flash_gate_pin_t *
ngx_http_flash_gate_keep_pin(ngx_str_t *path, uint32_t hash, ngx_fd_t fd)
{
    ngx_http_flash_gate_pin_t  *p, *end, *oldest;

    if (path->len > NGX_HTTP_FLASH_GATE_PIN_PATH) {
        return NULL;
    }

    oldest = NULL;
    p = ngx_http_flash_gate_pin_set(hash);

    for (end = p + NGX_HTTP_FLASH_GATE_PIN_WAYS; p < end; p++) {

        if (p->fd == NGX_INVALID_FILE) {
            oldest = p;
            break;
        }

        if (p->users == 0
            && (oldest == NULL
                || (ngx_msec_int_t) (p->since - oldest->since) < 0))
        {
            oldest = p;
        }
    }

    if (oldest == NULL) {
        return NULL;
    }

    if (oldest->fd != NGX_INVALID_FILE) {
        ngx_http_flash_gate_close_pin(oldest);
    }

    p = oldest;
    p->fd = fd;
    p->hash = hash;
    p->length = path->len;
    p->since = ngx_current_msec;

    ngx_memcpy(paths[p - pins], path->data, path->len);

    if (!sweep.timer_set) {
        ngx_add_timer(&sweep, NGX_HTTP_FLASH_GATE_PIN_MS);
    }

    return p;
}


/* Closes unused pins of this age; returns whether any pin is left. */

static ngx_uint_t
ngx_http_flash_gate_close_unused(ngx_msec_t age)
{
    ngx_uint_t                  left;
    ngx_http_flash_gate_pin_t  *p;

    left = 0;

    for (p = pins; p < pins + NGX_HTTP_FLASH_GATE_PINS; p++) {

        if (p->fd == NGX_INVALID_FILE) {
            continue;
        }

        if (p->users || ngx_current_msec - p->since < age) {
            left = 1;
            continue;
        }

        ngx_http_flash_gate_close_pin(p);
    }

    return left;
}


static void
ngx_http_flash_gate_sweep(ngx_event_t *ev)
{
    if (ngx_http_flash_gate_close_unused(NGX_HTTP_FLASH_GATE_PIN_MS)) {
        ngx_add_timer(ev, NGX_HTTP_FLASH_GATE_PIN_MS);
    }
}


/* The pin can be the last reference of a file deleted meanwhile. */

static void
ngx_http_flash_gate_close_pin(ngx_http_flash_gate_pin_t *p)
{
    struct stat  st;

    if (fstat(p->fd, &st) == 0
        && st.st_nlink == 0
        && st.st_size >= NGX_HTTP_FLASH_GATE_LARGE_BYTES)
    {
        ngx_http_flash_gate_close_elsewhere(p->fd);
    }

    (void) close(p->fd);
    p->fd = NGX_INVALID_FILE;
}
