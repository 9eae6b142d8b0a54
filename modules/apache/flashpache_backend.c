/*
 * Connections to `flash backend`.  A child keeps those that are idle and makes
 * another one when a thread finds none; a thread has a connection to itself
 * while it asks.  No failure here ends a request: the server goes on as it
 * would without this module.
 */

#include "mod_flashpache.h"

#include "ap_mpm.h"
#include "apr_thread_mutex.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

APLOG_USE_MODULE(flashpache);

/* The most idle connections of a child, and of all children: half of those that
 * the backend accepts. */
#define IDLE_MAX           256
#define IDLE_MAX_OF_ALL    2048

/* A backend that accepts a connection welcomes it within this time. */
#define WELCOME_MS         1000

/* While one connection was not welcomed for so long, no other one is made. */
#define CONNECTING_MS      500

/* Beyond the deadline that was sent, before the backend counts as silent. */
#define GRACE_MS           1000

/* A thread that leaves a close to the backend waits so long for room in the
 * socket.  A disk can take longer, and a hung one does not end. */
#define CLOSE_MS           100

/* After a failure, this child makes no connection for so long. */
#define RETRY_AFTER        apr_time_from_sec(1)

typedef struct {
    int fd;
    apr_uint32_t id;            /* of the last request */
    int kept;                   /* it has answered before */
} connection_t;

static struct {
    server_rec *server;
    const flashpache_config_t *config;
    apr_thread_mutex_t *mutex;
    apr_time_t retry;           /* 0, or after a failure: not before this */
    apr_time_t connecting;      /* 0, or when the oldest that waits began */
    int idle_max;
    int idle_count;
    connection_t idle[IDLE_MAX];
} child;

void flashpache_backend_init(apr_pool_t *pchild, server_rec *s,
                             const flashpache_config_t *config)
{
    int daemons = 1, threads = 1;

    (void)ap_mpm_query(AP_MPMQ_MAX_DAEMONS, &daemons);
    (void)ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);

    child.server = s;
    child.config = config;
    child.idle_max = threads < IDLE_MAX ? threads : IDLE_MAX;
    if (daemons > 0 && child.idle_max > IDLE_MAX_OF_ALL / daemons) {
        child.idle_max = IDLE_MAX_OF_ALL / daemons;
    }
    if (child.idle_max < 1) {
        child.idle_max = 1;
    }

    if (apr_thread_mutex_create(&child.mutex, APR_THREAD_MUTEX_DEFAULT,
                                pchild) != APR_SUCCESS) {
        /* Without a pool nothing is asked. */
        child.mutex = NULL;
    }
}

static void drop_idle(void)
{
    apr_thread_mutex_lock(child.mutex);
    while (child.idle_count > 0) {
        close(child.idle[--child.idle_count].fd);
    }
    apr_thread_mutex_unlock(child.mutex);
}

/* Counts a failure, logs the first of its cause, and lets the child be without
 * new connections for a moment. */
static void failed(flashpache_cause_t cause, int error)
{
    static const char *const said[FLASHPACHE_CAUSES] = {
        "cannot be reached; start `flash backend`, or correct "
            "FlashpacheBackend",
        "speaks another version of the protocol; install the module and "
            "`flash` from the same release",
        "does not serve this server's user; start it as that user, or with "
            "--allow",
        "has no room for another connection",
        "does not answer",
        "answers with a message that is not of the protocol",
        "closed the connection"
    };

    apr_thread_mutex_lock(child.mutex);
    child.retry = apr_time_now() + RETRY_AFTER;
    child.connecting = 0;
    apr_thread_mutex_unlock(child.mutex);

    if (flashpache_failed(cause)) {
        ap_log_error(APLOG_MARK, APLOG_WARNING, APR_FROM_OS_ERROR(error),
                     child.server,
                     "the backend at %s %s. Requests go on without it",
                     child.config->backend, said[cause]);
    }
}

/* The cause of a failed call of the client. */
static flashpache_cause_t cause_of(int error)
{
    return error == EPROTO ? FLASHPACHE_GARBAGE : FLASHPACHE_ENDED;
}

/* Waits for the backend's HELLO.  Returns 0, or -1 after a failure. */
static int await_welcome(int fd)
{
    static const flashpache_cause_t causes[] = {
        FLASHPACHE_GARBAGE, FLASHPACHE_VERSION, FLASHPACHE_USER,
        FLASHPACHE_ROOM
    };
    apr_time_t deadline = apr_time_now() + apr_time_from_msec(WELCOME_MS);
    struct pollfd event = { fd, POLLIN, 0 };
    flash_reply_t reply;

    for (;;) {
        int left_ms = (int)apr_time_as_msec(deadline - apr_time_now());
        int got = flash_receive(fd, &reply);

        if (got == -1) {
            failed(cause_of(errno), errno);
            return -1;
        }

        if (got == 1) {
            if (reply.kind == FLASH_HELLO_REPLY
                && reply.status == FLASH_WELCOME) {
                return 0;
            }
            failed(reply.kind == FLASH_HELLO_REPLY ? causes[reply.status]
                                                   : FLASHPACHE_GARBAGE, 0);
            return -1;
        }

        if (left_ms <= 0) {
            failed(FLASHPACHE_SILENT, 0);
            return -1;
        }

        (void)poll(&event, 1, left_ms);
    }
}

static int make_connection(connection_t *connection)
{
    const flash_hello_t hello = {
        .name = "apache",
        .group = flashpache_group(),
        .waiters_max = (apr_uint32_t)child.config->waiters_max
    };

    connection->id = 0;
    connection->kept = 0;
    connection->fd = flash_connect(child.config->backend, &hello);

    if (connection->fd == -1) {
        failed(FLASHPACHE_ABSENT, errno);
        return -1;
    }

    if (await_welcome(connection->fd) == -1) {
        close(connection->fd);
        return -1;
    }

    apr_thread_mutex_lock(child.mutex);
    child.retry = 0;
    child.connecting = 0;
    apr_thread_mutex_unlock(child.mutex);

    flashpache_count(FLASHPACHE_CONNECTS, 1);
    return 0;
}

/* Takes an idle connection, or makes one. */
static int take(connection_t *connection)
{
    int is_idle, is_early = 0;

    apr_thread_mutex_lock(child.mutex);
    is_idle = child.idle_count > 0;
    if (is_idle) {
        *connection = child.idle[--child.idle_count];
    }
    else {
        apr_time_t now = apr_time_now();

        /* After a failure one thread tries, and the others do not wait; nor do
         * they if the backend is stopped and has not failed yet. */
        is_early = now < child.retry
                   || (child.connecting && now - child.connecting
                       > apr_time_from_msec(CONNECTING_MS));
        if (!is_early && child.retry) {
            child.retry = now + RETRY_AFTER;
        }
        if (!is_early && !child.connecting) {
            child.connecting = now;
        }
    }
    apr_thread_mutex_unlock(child.mutex);

    if (is_early) {
        flashpache_count(FLASHPACHE_WITHOUT, 1);
        return -1;
    }

    return is_idle ? 0 : make_connection(connection);
}

static void give_back(const connection_t *connection)
{
    int is_full;

    apr_thread_mutex_lock(child.mutex);
    is_full = child.idle_count >= child.idle_max;
    if (!is_full) {
        child.idle[child.idle_count++] = *connection;
    }
    apr_thread_mutex_unlock(child.mutex);

    if (is_full) {
        close(connection->fd);
    }
}

static flashpache_asked_t ask(flash_request_t *request, flash_reply_t *reply)
{
    connection_t connection;
    int got, error;

    for (;;) {
        if (take(&connection) == -1) {
            return FLASHPACHE_UNANSWERED;
        }

        request->id = ++connection.id;
        got = flash_ask(connection.fd, request,
                        (int)request->deadline_ms + GRACE_MS, reply);
        error = errno;

        if (got == 1) {
            break;
        }

        close(connection.fd);
        drop_idle();

        /* A backend that was restarted has ended the kept connections; a
         * new connection shows whether there is one now. */
        if (got == 0 || !connection.kept || error == EPROTO) {
            failed(got == 0 ? FLASHPACHE_SILENT : cause_of(error),
                   got == 0 ? 0 : error);
            return FLASHPACHE_UNANSWERED;
        }
    }

    if (!connection.kept && flashpache_worked()) {
        ap_log_error(APLOG_MARK, APLOG_NOTICE, 0, child.server,
                     "the backend at %s works again", child.config->backend);
    }

    connection.kept = 1;
    give_back(&connection);
    return FLASHPACHE_ANSWERED;
}

flashpache_asked_t flashpache_ask(flash_request_t *request,
                                  flash_reply_t *reply)
{
    flashpache_asked_t asked;

    if (!child.mutex) {
        return FLASHPACHE_UNANSWERED;
    }

    if (!flashpache_wait_begin(child.config->waiters_max)) {
        return FLASHPACHE_FULL;
    }

    flashpache_count(request->path ? FLASHPACHE_NAMES : FLASHPACHE_RANGES, 1);
    asked = ask(request, reply);
    flashpache_wait_end();

    return asked;
}

/* Waits for room if the socket is full of closes that the backend has not
 * read.  Returns 0, or the error. */
static int send_close(int connection, int fd)
{
    struct pollfd room = { connection, POLLOUT, 0 };

    if (flash_send_close(connection, fd) == 0) {
        return 0;
    }
    if (errno == EAGAIN && poll(&room, 1, CLOSE_MS) == 1
        && flash_send_close(connection, fd) == 0) {
        return 0;
    }
    return errno;
}

void flashpache_leave(int fd)
{
    connection_t connection;
    int error;

    if (!child.mutex) {
        return;
    }

    while (take(&connection) == 0) {
        error = send_close(connection.fd, fd);
        if (error == 0) {
            flashpache_count(FLASHPACHE_CLOSES, 1);
        }
        if (error == 0 || error == EAGAIN) {
            connection.kept = 1;
            give_back(&connection);
            return;
        }

        /* As for a question, a backend that was restarted has ended the kept
         * connections, and a new one is tried. */
        close(connection.fd);
        drop_idle();
        if (!connection.kept) {
            failed(FLASHPACHE_ENDED, error);
            return;
        }
    }
}
