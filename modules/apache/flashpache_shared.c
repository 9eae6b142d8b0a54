/*
 * Memory shared by all children: counters, which failures of the backend were
 * logged, and how many requests each child holds.
 *
 * It is created once and survives restarts, so that the children of an older
 * configuration, which may still hold requests, count in the same place.
 */

#include "mod_flashpache.h"

#include "ap_mpm.h"
#include "apr_atomic.h"
#include "apr_shm.h"
#include "apr_strings.h"
#include "http_protocol.h"
#include "mod_status.h"

#include <time.h>
#include <unistd.h>

APLOG_USE_MODULE(flashpache);

/* Places for children, as a multiple of ServerLimit: children of the last
 * configuration may still end their requests. */
#define PLACES_FACTOR  4

/* The version of shared_t: raised with every change of it. */
#define LAYOUT         1

/* A child's place.  The parent frees that of a child that crashed, before it
 * can start another process with the same id. */
typedef struct {
    volatile apr_uint32_t pid;
    volatile apr_uint32_t waiting;
} place_t;

/* Entries of the memory for names and contents that were warm; a power of
 * two. */
#define RECENT_MAX     4096

/* An entry is a hash, whose lowest bits are replaced by the millisecond. */
#define RECENT_MS      0xffffffULL

typedef struct {
    apr_uint64_t group;
    apr_uint64_t outcomes[FLASHPACHE_OUTCOMES];
    apr_uint64_t causes[FLASHPACHE_CAUSES];
    apr_uint64_t counts[FLASHPACHE_COUNTS];
    /* A bit for each cause that was logged since the backend last worked. */
    volatile apr_uint32_t logged;
    apr_uint64_t recent[RECENT_MAX];
    int places_max;
    place_t places[1];
} shared_t;

static shared_t *shared;

/* The most requests that this child holds. */
static apr_uint32_t child_waiters_max;

/* This child's place; NULL if all were taken, and at the child's end. */
static place_t *place;

static place_t *own_place(void)
{
    return __atomic_load_n(&place, __ATOMIC_ACQUIRE);
}

static const char *const outcome_names[FLASHPACHE_OUTCOMES] = {
    "hit", "held", "passed", "error", "busy", "timeout"
};

static const char *const cause_names[FLASHPACHE_CAUSES] = {
    "absent", "version", "user", "room", "silent", "garbage", "ended"
};

static const char *const count_names[FLASHPACHE_COUNTS] = {
    "names", "ranges", "lost", "untestable", "without", "closes", "connects",
    "wait_us"
};

static void add(apr_uint64_t *counter, apr_uint64_t more)
{
    __atomic_fetch_add(counter, more, __ATOMIC_RELAXED);
}

static apr_uint64_t sum(const apr_uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

int flashpache_shared_init(server_rec *s)
{
    /* a module of another version must not take this one's memory over */
    const char *key = apr_psprintf(s->process->pool, "mod_flashpache/%d/%"
                                   APR_SIZE_T_FMT, LAYOUT, sizeof(shared_t));
    /* Kept by the process while a restart unloads this module. */
    shared_t **retained = ap_retained_data_get(key);
    apr_shm_t *segment;
    apr_status_t rv;
    apr_size_t bytes;
    int daemons = 1;

    if (!retained) {
        retained = ap_retained_data_create(key, sizeof(*retained));
    }

    if (!*retained) {
        (void)ap_mpm_query(AP_MPMQ_HARD_LIMIT_DAEMONS, &daemons);
        if (daemons < 1) {
            daemons = 1;
        }

        bytes = sizeof(shared_t) + sizeof(place_t) * daemons * PLACES_FACTOR;
        rv = apr_shm_create(&segment, bytes, NULL, s->process->pool);
        if (rv != APR_SUCCESS) {
            ap_log_error(APLOG_MARK, APLOG_CRIT, rv, s,
                         "cannot create %" APR_SIZE_T_FMT " bytes of shared "
                         "memory for the counters", bytes);
            return HTTP_INTERNAL_SERVER_ERROR;
        }

        *retained = apr_shm_baseaddr_get(segment);
        memset(*retained, 0, bytes);
        (*retained)->places_max = daemons * PLACES_FACTOR;
        (*retained)->group = ((apr_uint64_t)getpid() << 40)
                             ^ (apr_uint64_t)apr_time_now();
    }

    shared = *retained;
    return OK;
}

static void free_place(place_t *left)
{
    apr_atomic_set32(&left->waiting, 0);
    apr_atomic_set32(&left->pid, 0);
}

static apr_status_t leave_place(void *unused)
{
    place_t *left = own_place();

    (void)unused;
    /* A thread that still waits must not count in the place of the next. */
    __atomic_store_n(&place, NULL, __ATOMIC_RELEASE);
    free_place(left);
    return APR_SUCCESS;
}

void flashpache_shared_child_init(apr_pool_t *pchild, int waiters_max)
{
    int i;

    child_waiters_max = (apr_uint32_t)waiters_max;

    for (i = 0; i < shared->places_max; i++) {
        place_t *candidate = &shared->places[i];

        if (apr_atomic_cas32(&candidate->pid, (apr_uint32_t)getpid(), 0)
            == 0) {
            apr_atomic_set32(&candidate->waiting, 0);
            __atomic_store_n(&place, candidate, __ATOMIC_RELEASE);
            apr_pool_cleanup_register(pchild, NULL, leave_place,
                                      apr_pool_cleanup_null);
            return;
        }
    }
}

void flashpache_shared_child_ended(pid_t pid)
{
    int i;

    for (i = 0; shared && i < shared->places_max; i++) {
        if (apr_atomic_read32(&shared->places[i].pid) == (apr_uint32_t)pid) {
            free_place(&shared->places[i]);
        }
    }
}

apr_uint64_t flashpache_group(void)
{
    return shared->group;
}

void flashpache_count(flashpache_count_t count, apr_uint64_t more)
{
    add(&shared->counts[count], more);
}

void flashpache_count_outcome(flashpache_outcome_t outcome)
{
    add(&shared->outcomes[outcome], 1);
}

int flashpache_failed(flashpache_cause_t cause)
{
    apr_uint32_t bit = 1U << cause;

    add(&shared->causes[cause], 1);
    return !(__atomic_fetch_or(&shared->logged, bit, __ATOMIC_RELAXED) & bit);
}

int flashpache_worked(void)
{
    return apr_atomic_read32(&shared->logged) != 0
           && apr_atomic_xchg32(&shared->logged, 0) != 0;
}

/* The requests that all children hold. */
static apr_uint32_t waiting(void)
{
    apr_uint32_t total = 0;
    int i;

    for (i = 0; i < shared->places_max; i++) {
        total += apr_atomic_read32(&shared->places[i].waiting);
    }

    return total;
}

int flashpache_wait_begin(int waiters_max)
{
    place_t *own = own_place();

    /* The backend has the exact quota.  This one also holds while the backend
     * is silent; threads that come here together may exceed it by a few. */
    if (waiting() >= (apr_uint32_t)waiters_max) {
        return 0;
    }

    /* A child whose threads all wait leaves its other connections unserved,
     * however many threads are free in the other children. */
    if (own && apr_atomic_inc32(&own->waiting) >= child_waiters_max) {
        flashpache_wait_end();
        return 0;
    }

    return 1;
}

void flashpache_wait_end(void)
{
    place_t *own = own_place();
    apr_uint32_t count = own ? apr_atomic_read32(&own->waiting) : 0;

    /* Never below 0, also if the place was left meanwhile. */
    while (count > 0) {
        apr_uint32_t before = apr_atomic_cas32(&own->waiting, count - 1,
                                               count);

        if (before == count) {
            break;
        }
        count = before;
    }
}

/* Multiplies and folds eight bytes at a time: every request pays for it.  Two
 * things with the same hash cost one request a wait at most. */
static apr_uint64_t hash_of(const char *path, apr_uint64_t number)
{
    const apr_uint64_t odd = 0x9e3779b97f4a7c15ULL;
    apr_size_t left = strlen(path);
    apr_uint64_t hash = (number ^ left) * odd, word;

    for (; left >= sizeof(word); left -= sizeof(word), path += sizeof(word)) {
        memcpy(&word, path, sizeof(word));
        hash = (hash ^ (hash >> 32) ^ word) * odd;
    }
    word = 0;
    memcpy(&word, path, left);
    hash = (hash ^ (hash >> 32) ^ word) * odd;
    return hash ^ (hash >> 29);
}

static apr_uint64_t *entry_of(apr_uint64_t hash)
{
    return &shared->recent[(hash >> 24) % RECENT_MAX];
}

/* The coarse clock is exact to some milliseconds and costs the least. */
static apr_uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (apr_uint64_t)now.tv_sec * 1000
           + (apr_uint64_t)now.tv_nsec / 1000000;
}

int flashpache_recent(const char *path, apr_uint64_t number, apr_uint64_t ms)
{
    apr_uint64_t hash = hash_of(path, number);
    apr_uint64_t entry = sum(entry_of(hash));

    return (entry & ~RECENT_MS) == (hash & ~RECENT_MS)
           && ((now_ms() - entry) & RECENT_MS) <= ms;
}

void flashpache_remember(const char *path, apr_uint64_t number)
{
    apr_uint64_t hash = hash_of(path, number);

    __atomic_store_n(entry_of(hash),
                     (hash & ~RECENT_MS) | (now_ms() & RECENT_MS),
                     __ATOMIC_RELAXED);
}

const char *flashpache_outcome_name(flashpache_outcome_t outcome)
{
    return outcome_names[outcome];
}

/* Prints every counter as prefix, name, separator, value, end. */
static void print_counters(request_rec *r, const char *prefix,
                           const char *separator, const char *end)
{
    int i;

    ap_rprintf(r, "%swaiting%s%u%s", prefix, separator, waiting(), end);

    for (i = 0; i < FLASHPACHE_OUTCOMES; i++) {
        ap_rprintf(r, "%srequests_%s%s%" APR_UINT64_T_FMT "%s", prefix,
                   outcome_names[i], separator, sum(&shared->outcomes[i]),
                   end);
    }

    for (i = 0; i < FLASHPACHE_COUNTS; i++) {
        ap_rprintf(r, "%s%s%s%" APR_UINT64_T_FMT "%s", prefix, count_names[i],
                   separator, sum(&shared->counts[i]), end);
    }

    for (i = 0; i < FLASHPACHE_CAUSES; i++) {
        ap_rprintf(r, "%sbackend_%s%s%" APR_UINT64_T_FMT "%s", prefix,
                   cause_names[i], separator, sum(&shared->causes[i]), end);
    }
}

int flashpache_status_page(request_rec *r)
{
    if (r->method_number != M_GET) {
        return HTTP_METHOD_NOT_ALLOWED;
    }

    ap_set_content_type(r, "text/plain; charset=us-ascii");
    apr_table_setn(r->headers_out, "Cache-Control", "no-store");
    if (!r->header_only) {
        print_counters(r, "", " ", "\n");
    }
    return OK;
}

int flashpache_status_hook(request_rec *r, int flags)
{
    if (flags & AP_STATUS_SHORT) {
        print_counters(r, "Flashpache-", ": ", "\n");
    }
    else {
        ap_rputs("<hr />\n<h2>Flashpache</h2>\n<dl>\n", r);
        print_counters(r, "<dt>", ": ", "</dt>\n");
        ap_rputs("</dl>\n", r);
    }
    return OK;
}
