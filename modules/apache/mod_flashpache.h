/*
 * mod_flashpache: what its files share.
 *
 *   mod_flashpache.c        directives and hooks
 *   flashpache_hold.c       tests what a request needs, and holds the request
 *   flashpache_backend.c    connections to `flash backend`, and their failures
 *   flashpache_shared.c     memory shared by all children: counters, waiters
 */

#ifndef MOD_FLASHPACHE_H
#define MOD_FLASHPACHE_H

#include "httpd.h"
#include "http_config.h"
#include "http_log.h"
#include "apr_time.h"

#include "flash_client.h"

/* The whole server's settings. */
typedef struct {
    const char *backend;        /* path of the backend's socket */
    int waiters_max;            /* of all children; 0 until the MPM is known */
    int timeout_s;              /* the longest hold of a request */
    int first_bytes;            /* of an answer's content to warm */
    int force;                  /* ask even for what is in memory */
} flashpache_config_t;

extern flashpache_config_t flashpache_config;

/* The one symbol that the module exports. */
extern module AP_MODULE_DECLARE_DATA flashpache_module
    __attribute__((visibility("default")));

/* How a request fared; the highest value of all its holds counts. */
typedef enum {
    FLASHPACHE_HIT,             /* everything was in memory */
    FLASHPACHE_HELD,            /* held until everything was in memory */
    FLASHPACHE_PASSED,          /* went on, and may have waited for the disk */
    FLASHPACHE_ERROR,           /* went on without an answer of the backend */
    FLASHPACHE_BUSY,            /* 503: too many cold requests */
    FLASHPACHE_TIMEOUT,         /* 503: the disk did not answer in time */
    FLASHPACHE_OUTCOMES
} flashpache_outcome_t;

/* Why the backend gave no answer. */
typedef enum {
    FLASHPACHE_ABSENT,          /* no connection */
    FLASHPACHE_VERSION,         /* it speaks another version */
    FLASHPACHE_USER,            /* it does not serve this user */
    FLASHPACHE_ROOM,            /* it has too many connections */
    FLASHPACHE_SILENT,          /* no answer in time */
    FLASHPACHE_GARBAGE,         /* not the protocol */
    FLASHPACHE_ENDED,           /* it closed the connection */
    FLASHPACHE_CAUSES
} flashpache_cause_t;

/* Counters besides one for each outcome and each cause. */
typedef enum {
    FLASHPACHE_NAMES,           /* names asked for */
    FLASHPACHE_RANGES,          /* ranges asked for */
    FLASHPACHE_LOST,            /* out of memory again after each hold */
    FLASHPACHE_UNTESTABLE,      /* asked once: no residency test */
    FLASHPACHE_WITHOUT,         /* not asked: the backend failed just before */
    FLASHPACHE_CLOSES,          /* deleted files left to the backend to close */
    FLASHPACHE_CONNECTS,        /* connections made */
    FLASHPACHE_WAIT_US,         /* time in holds */
    FLASHPACHE_COUNTS
} flashpache_count_t;


/* flashpache_hold.c */

/* The ranges of a request that are warmed. */
#define FLASHPACHE_RANGES_MAX  8

/* One request of a client, with its subrequests.  An internal redirect begins
 * another one, which inherits the time that was waited. */
typedef struct {
    flashpache_outcome_t outcome;
    apr_interval_time_t waited;
    const char *present;        /* the last file whose name is in memory */
    const char *pinned;         /* the last one that is kept there */
    const char *name;           /* the last one before its look-up */
    const request_rec *off;     /* of a location where the module is off */
    int answering;              /* its own handler runs */
    int without;                /* the backend has failed meanwhile */
    int refused;                /* it must end in 503 */
    int is_error_page;          /* of a request that ended in 503 */
    const request_rec *shut;    /* has a .htaccess that was not read */
    const request_rec *part;    /* the last subrequest; its end is noticed */
} flashpache_request_t;

/* A part of a file. */
typedef struct {
    apr_off_t offset;
    apr_off_t length;
} flashpache_window_t;

/* The client's request that a subrequest belongs to. */
request_rec *flashpache_whole_request(const request_rec *r);

/* The state of the whole request; the first returns NULL if there is none. */
flashpache_request_t *flashpache_known_request(const request_rec *r);
flashpache_request_t *flashpache_request_of(request_rec *r);

/*
 * Each of these holds the request until something is in memory.  They return
 * OK if the request goes on, in memory or not, or HTTP_SERVICE_UNAVAILABLE.
 */

/* A name, unless a child has found it in memory a moment ago. */
int flashpache_bring_in_name(request_rec *r, flashpache_request_t *request,
                             const char *path);

/* A name, which stays in memory for as long as the request lives. */
int flashpache_pin_name(request_rec *r, flashpache_request_t *request,
                        const char *path);

/* The entries of a directory. */
int flashpache_bring_in_directory(request_rec *r,
                                  flashpache_request_t *request,
                                  const char *path);

/* Parts of a file whose name is in memory. */
int flashpache_bring_in_file(request_rec *r, flashpache_request_t *request,
                             const char *path,
                             const flashpache_window_t *windows, int count);


/* flashpache_content.c */

/* Holds the request until the parts of its file that the answer begins with are
 * in memory.  Returns OK if it goes on, or HTTP_SERVICE_UNAVAILABLE. */
int flashpache_bring_in_content(request_rec *r, flashpache_request_t *request);


/* flashpache_backend.c */

/* How an attempt to ask ended. */
typedef enum {
    FLASHPACHE_ANSWERED,        /* there is a reply */
    FLASHPACHE_FULL,            /* the server's own quota is used up */
    FLASHPACHE_UNANSWERED       /* the backend failed; counted and logged */
} flashpache_asked_t;

/* Prepares a new child, which connects when it first asks. */
void flashpache_backend_init(apr_pool_t *pchild, server_rec *s,
                             const flashpache_config_t *config);

/* Asks and waits.  Sets the request's id. */
flashpache_asked_t flashpache_ask(flash_request_t *request,
                                  flash_reply_t *reply);

/* Leaves the last close of a deleted file to the backend, if a connection is
 * idle.  The caller closes its own descriptor in any case. */
void flashpache_leave(int fd);


/* flashpache_shared.c */

/* Creates the shared memory, or finds that of the last configuration. */
int flashpache_shared_init(server_rec *s);

/* Begins a child that holds at most `waiters_max` requests. */
void flashpache_shared_child_init(apr_pool_t *pchild, int waiters_max);

/* Called in the parent for each child that has ended, in any way. */
void flashpache_shared_child_ended(pid_t pid);

/* A number common to all children of this server, also after a restart. */
apr_uint64_t flashpache_group(void);

void flashpache_count(flashpache_count_t count, apr_uint64_t more);
void flashpache_count_outcome(flashpache_outcome_t outcome);

/* Counts a failure.  Returns whether it is the first of its cause since the
 * backend last worked. */
int flashpache_failed(flashpache_cause_t cause);

/* Returns whether the backend works for the first time since a failure. */
int flashpache_worked(void);

/* One more waiter of this child, unless it has its share, or all children
 * together have waiters_max. */
int flashpache_wait_begin(int waiters_max);
void flashpache_wait_end(void);

/* Whether a child remembered this at most `ms` milliseconds ago.  `number`
 * tells a name, the parts of a file and its versions from each other. */
int flashpache_recent(const char *path, apr_uint64_t number, apr_uint64_t ms);
void flashpache_remember(const char *path, apr_uint64_t number);

/* These numbers are not for contents, and FLASHPACHE_WHOLE is for one whose
 * version does not matter. */
#define FLASHPACHE_ENTRIES     0
#define FLASHPACHE_PRESENT     1
#define FLASHPACHE_MISSING     2
#define FLASHPACHE_WHOLE       3

const char *flashpache_outcome_name(flashpache_outcome_t outcome);

/* Both print the counters. */
int flashpache_status_page(request_rec *r);
int flashpache_status_hook(request_rec *r, int flags);

#endif /* MOD_FLASHPACHE_H */
