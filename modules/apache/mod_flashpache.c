/*
 * mod_flashpache: requests wait in `flash backend`, not in the disk's queue.
 *
 * Before Apache looks at a file, the module tests whether its name and the
 * first part of its content are in memory.  If not, it asks the backend to
 * bring them there, and holds the request until then.  The number of held
 * requests is bounded, so that the others always find a thread; those beyond
 * it get 503.  Everything else is left to Apache's own handlers.
 *
 * The protocol is docs/backend-protocol.md, the design follows Flashpache in
 * Ruan and Pai, "Understanding and Addressing Blocking-Induced Network Server
 * Latency", section 5.1.
 */

#include "mod_flashpache.h"

#include "ap_mpm.h"
#include "apr_lib.h"
#include "apr_optional_hooks.h"
#include "apr_strings.h"
#include "http_core.h"
#include "http_protocol.h"
#include "http_request.h"
#include "mod_status.h"

#include <errno.h>
#include <sys/un.h>

#define STATUS_HANDLER         "flashpache-status"

#define TIMEOUT_DEFAULT_S      30
#define TIMEOUT_MAX_S          3600
#define FIRST_DEFAULT          (1024 * 1024)
#define FIRST_MAX              (64 * 1024 * 1024)

/* Warmed of a .htaccess file; hardly any is longer. */
#define HTACCESS_BYTES         32768

/* A .htaccess file that was found in memory is not tested again for this time,
 * which is short because its version is not known. */
#define HTACCESS_WARM_MS       100

/* A directory's own setting. */
typedef struct {
    int enabled;                /* -1: not set here */
} directory_config_t;

flashpache_config_t flashpache_config;


/* Directives. */

static void *create_directory_config(apr_pool_t *p, char *unused)
{
    directory_config_t *directory = apr_palloc(p, sizeof(*directory));

    (void)unused;
    directory->enabled = -1;
    return directory;
}

static void *merge_directory_config(apr_pool_t *p, void *base, void *add)
{
    const directory_config_t *outer = base, *inner = add;
    directory_config_t *merged = apr_palloc(p, sizeof(*merged));

    merged->enabled = inner->enabled != -1 ? inner->enabled : outer->enabled;
    return merged;
}

static const char *set_enabled(cmd_parms *cmd, void *directory, int on)
{
    (void)cmd;
    ((directory_config_t *)directory)->enabled = on;
    return NULL;
}

static const char *set_backend(cmd_parms *cmd, void *unused, const char *path)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);

    (void)unused;
    if (error) {
        return error;
    }
    if (path[0] != '/') {
        return apr_pstrcat(cmd->pool, "FlashpacheBackend: ", path,
                           " is not an absolute path", NULL);
    }
    if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        return apr_psprintf(cmd->pool, "FlashpacheBackend: the path of a "
                            "socket has at most %d bytes", (int)
                            sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
    }
    flashpache_config.backend = path;
    return NULL;
}

/* A number of the server's settings. */
typedef struct {
    int least;
    int most;
    int *number;
} number_t;

static const number_t waiters = { 1, 1000000, &flashpache_config.waiters_max };
static const number_t timeout = { 1, TIMEOUT_MAX_S,
                                  &flashpache_config.timeout_s };
static const number_t first = { 0, FIRST_MAX, &flashpache_config.first_bytes };

static const char *set_number(cmd_parms *cmd, void *unused, const char *word)
{
    const number_t *setting = cmd->info;
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);
    apr_int64_t number;
    char *end;

    (void)unused;
    if (error) {
        return error;
    }
    errno = 0;
    number = apr_strtoi64(word, &end, 10);
    if (errno || !apr_isdigit(word[0]) || *end || number < setting->least
        || number > setting->most) {
        return apr_psprintf(cmd->pool, "%s: %s is not a number from %d to %d",
                            cmd->cmd->name, word, setting->least,
                            setting->most);
    }
    *setting->number = (int)number;
    return NULL;
}

static const char *set_force(cmd_parms *cmd, void *unused, int on)
{
    const char *error = ap_check_cmd_context(cmd, GLOBAL_ONLY);

    (void)unused;
    flashpache_config.force = on;
    return error;
}

static const command_rec directives[] = {
    AP_INIT_FLAG("Flashpache", set_enabled, NULL, RSRC_CONF | ACCESS_CONF,
                 "On to hold requests until their files are in memory"),
    AP_INIT_TAKE1("FlashpacheBackend", set_backend, NULL, RSRC_CONF,
                  "the socket of `flash backend`"),
    AP_INIT_TAKE1("FlashpacheWaiters", set_number, (void *)&waiters, RSRC_CONF,
                  "the most held requests; default half of "
                  "MaxRequestWorkers"),
    AP_INIT_TAKE1("FlashpacheTimeout", set_number, (void *)&timeout, RSRC_CONF,
                  "seconds until a held request gets 503; default 30"),
    AP_INIT_TAKE1("FlashpacheFirst", set_number, (void *)&first, RSRC_CONF,
                  "bytes of content to warm; default 1048576"),
    AP_INIT_FLAG("FlashpacheForce", set_force, NULL, RSRC_CONF,
                 "On, for tests, to ask also for what is in memory"),
    { NULL }
};

static int pre_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp)
{
    (void)pconf;
    (void)plog;
    (void)ptemp;
    flashpache_config.backend = FLASH_SOCKET;
    flashpache_config.waiters_max = 0;
    flashpache_config.timeout_s = TIMEOUT_DEFAULT_S;
    flashpache_config.first_bytes = FIRST_DEFAULT;
    flashpache_config.force = 0;
    return OK;
}

/* After the MPM's own check, which bounds its numbers. */
static int check_config(apr_pool_t *pconf, apr_pool_t *plog,
                        apr_pool_t *ptemp, server_rec *s)
{
    int daemons = 1, threads = 0, workers;

    (void)pconf;
    (void)plog;
    (void)ptemp;
    (void)ap_mpm_query(AP_MPMQ_MAX_DAEMONS, &daemons);
    (void)ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);
    workers = daemons * (threads > 0 ? threads : 1);

    if (flashpache_config.waiters_max == 0) {
        flashpache_config.waiters_max = workers > 1 ? workers / 2 : 1;
    }
    else if (flashpache_config.waiters_max >= workers && workers > 1) {
        ap_log_error(APLOG_MARK, APLOG_STARTUP | APLOG_EMERG, 0, s,
                     "FlashpacheWaiters %d must be less than "
                     "MaxRequestWorkers, which is %d: otherwise held requests "
                     "can take every thread", flashpache_config.waiters_max,
                     workers);
        return HTTP_INTERNAL_SERVER_ERROR;
    }
    return OK;
}

static int post_config(apr_pool_t *pconf, apr_pool_t *plog, apr_pool_t *ptemp,
                       server_rec *s)
{
    (void)pconf;
    (void)plog;
    (void)ptemp;
    return flashpache_shared_init(s);
}

/* Connections are not spread evenly over the children, so each may hold three
 * quarters of its threads, and in any case an equal part of what all may. */
static int waiters_of_child(void)
{
    int daemons = 1, threads = 1, part, most;

    (void)ap_mpm_query(AP_MPMQ_MAX_DAEMONS, &daemons);
    (void)ap_mpm_query(AP_MPMQ_MAX_THREADS, &threads);
    part = flashpache_config.waiters_max / (daemons > 0 ? daemons : 1);
    most = threads * 3 / 4;

    if (most > flashpache_config.waiters_max) {
        most = flashpache_config.waiters_max;
    }
    if (part < most) {
        part = most;
    }
    return part > 1 ? part : 1;
}

static void child_init(apr_pool_t *pchild, server_rec *s)
{
    flashpache_shared_child_init(pchild, waiters_of_child());
    flashpache_backend_init(pchild, s, &flashpache_config);
}

static void child_status(server_rec *s, pid_t pid, ap_generation_t generation,
                         int slot, mpm_child_status state)
{
    (void)s;
    (void)generation;
    (void)slot;
    if (state == MPM_CHILD_EXITED) {
        flashpache_shared_child_ended(pid);
    }
}


/* Hooks. */

static int is_enabled(const request_rec *r)
{
    const directory_config_t *directory =
        ap_get_module_config(r->per_dir_config, &flashpache_module);

    return directory->enabled == 1 && r->proxyreq == PROXYREQ_NONE;
}

/* The settings of a location are only known here and after the names were
 * looked up. */
static int flashpache_translate_name(request_rec *r)
{
    const directory_config_t *host =
        ap_get_module_config(r->server->lookup_defaults, &flashpache_module);

    if (host->enabled == 1 && !is_enabled(r)) {
        flashpache_request_of(r)->off = r;
    }
    return DECLINED;
}

/* The name of the file is known, and nothing was looked up.  The settings of
 * directories are not known yet. */
static int flashpache_map_to_storage(request_rec *r)
{
    flashpache_request_t *request;
    int status;

    if (!is_enabled(r) || !r->filename) {
        return DECLINED;
    }

    request = flashpache_request_of(r);
    request->name = r->filename;
    if (request->off == r || r->finfo.filetype != APR_NOFILE) {
        return DECLINED;
    }
    if (request->refused && r->main) {
        return HTTP_SERVICE_UNAVAILABLE;
    }
    status = flashpache_bring_in_name(r, request, r->filename);
    return status == OK ? DECLINED : status;
}

/* Does what the core does next, and makes 503 of the 403 that follows from a
 * .htaccess file that could not be warmed. */
static int flashpache_walk(request_rec *r)
{
    const flashpache_request_t *request;
    int status;

    if (!is_enabled(r)) {
        return DECLINED;
    }

    status = ap_directory_walk(r);
    if (status == OK) {
        status = ap_file_walk(r);
    }

    request = flashpache_known_request(r);
    if (status == HTTP_FORBIDDEN && request && request->shut == r) {
        apr_table_unset(r->notes, "error-notes");
        return HTTP_SERVICE_UNAVAILABLE;
    }
    return status;
}

/* Whether a directory is in truth this file: Apache looks for a .htaccess there
 * too. */
static int is_file(const char *directory, const char *file)
{
    size_t length = strlen(file);

    return strncmp(directory, file, length) == 0
           && (directory[length] == '/' || directory[length] == '\0');
}

static apr_status_t flashpache_open_htaccess(request_rec *r,
                                             const char *dir_name,
                                             const char *access_name,
                                             ap_configfile_t **conffile,
                                             const char **full_name)
{
    static const flashpache_window_t whole = { 0, HTACCESS_BYTES };
    flashpache_request_t *request;
    const char *path;
    int status;

    if (!is_enabled(r)) {
        return AP_DECLINED;
    }

    request = flashpache_request_of(r);
    if (request->off == r
        || (r->finfo.filetype == APR_REG && request->name
            && is_file(dir_name, request->name))) {
        return AP_DECLINED;
    }

    path = ap_make_full_path(r->pool, dir_name, access_name);
    (void)conffile;
    status = request->shut == r ? HTTP_SERVICE_UNAVAILABLE
                                : flashpache_bring_in_name(r, request, path);

    if (status == OK && request->present == path
        && (flashpache_config.force
            || !flashpache_recent(path, FLASHPACHE_WHOLE, HTACCESS_WARM_MS))) {
        status = flashpache_pin_name(r, request, path);
        if (status == OK) {
            status = flashpache_bring_in_file(r, request, path, &whole, 1);
        }
        if (status == OK && request->outcome < FLASHPACHE_PASSED) {
            flashpache_remember(path, FLASHPACHE_WHOLE);
        }
    }
    if (status == OK) {
        return AP_DECLINED;
    }

    /* Apache denies access if it cannot read a .htaccess file. */
    request->shut = r;
    *full_name = path;
    return APR_TIMEUP;
}

/* Whether a handler sends the file's content, and not what a program makes of
 * it.  Without SetHandler the handler's name is the media type, or empty if the
 * file has none. */
static int sends_files(const char *handler)
{
    return AP_IS_DEFAULT_HANDLER_NAME(handler)
           || strchr(handler, '/') != NULL
           || strcmp(handler, "default-handler") == 0
           || strcmp(handler, "send-as-is") == 0
           || strcmp(handler, "type-map") == 0;
}

static int flashpache_handler(request_rec *r)
{
    flashpache_request_t *request;
    int status = OK;

    if (strcmp(r->handler, STATUS_HANDLER) == 0) {
        return flashpache_status_page(r);
    }
    if (!is_enabled(r) || !r->filename) {
        return DECLINED;
    }

    request = flashpache_request_of(r);
    if (!r->main) {
        if (request->refused) {
            /* Refused in a subrequest, such as one for a directory's index. */
            return HTTP_SERVICE_UNAVAILABLE;
        }
        request->answering = 1;
    }

    if (r->method_number != M_GET || strncmp(r->handler, "proxy:", 6) == 0) {
        return DECLINED;
    }

    if (r->finfo.filetype == APR_DIR
        && strcmp(r->handler, DIR_MAGIC_TYPE) == 0) {
        status = flashpache_bring_in_directory(r, request, r->filename);
    }
    else if (r->finfo.filetype == APR_REG && !r->header_only
             && r->finfo.size > 0 && flashpache_config.first_bytes > 0
             && sends_files(r->handler)) {
        status = flashpache_bring_in_content(r, request);
    }
    return status == OK ? DECLINED : status;
}

/* Counts the request, and leaves notes for the access log. */
static int flashpache_log_transaction(request_rec *r)
{
    flashpache_outcome_t outcome = FLASHPACHE_HIT;
    apr_interval_time_t waited = 0;
    request_rec *last = NULL, *next;
    int is_known = 0;

    for (next = r; next; next = next->next) {
        const flashpache_request_t *request = flashpache_known_request(next);

        if (request) {
            is_known = 1;
            waited = request->waited;
            if (request->outcome > outcome) {
                outcome = request->outcome;
            }
        }
        last = next;
    }

    if (is_known) {
        const char *name = flashpache_outcome_name(outcome);
        const char *us = waited ? apr_psprintf(r->pool, "%" APR_TIME_T_FMT,
                                               waited) : "0";

        flashpache_count_outcome(outcome);
        apr_table_setn(last->notes, "flashpache", name);
        apr_table_setn(last->notes, "flashpache-us", us);
        if (last != r) {
            apr_table_setn(r->notes, "flashpache", name);
            apr_table_setn(r->notes, "flashpache-us", us);
        }
    }
    return DECLINED;
}

static void register_hooks(apr_pool_t *p)
{
    (void)p;
    ap_hook_pre_config(pre_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_check_config(check_config, NULL, NULL, APR_HOOK_REALLY_LAST);
    ap_hook_post_config(post_config, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_init(child_init, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_child_status(child_status, NULL, NULL, APR_HOOK_MIDDLE);
    ap_hook_translate_name(flashpache_translate_name, NULL, NULL,
                           APR_HOOK_REALLY_FIRST);
    ap_hook_map_to_storage(flashpache_map_to_storage, NULL, NULL,
                           APR_HOOK_REALLY_FIRST);
    ap_hook_open_htaccess(flashpache_open_htaccess, NULL, NULL,
                          APR_HOOK_REALLY_FIRST);
    /* Directly before the core's. */
    ap_hook_map_to_storage(flashpache_walk, NULL, NULL,
                           APR_HOOK_REALLY_LAST - 1);
    ap_hook_handler(flashpache_handler, NULL, NULL, APR_HOOK_REALLY_FIRST);
    ap_hook_log_transaction(flashpache_log_transaction, NULL, NULL,
                            APR_HOOK_REALLY_FIRST);
    APR_OPTIONAL_HOOK(ap, status_hook, flashpache_status_hook, NULL, NULL,
                      APR_HOOK_MIDDLE);
}

AP_DECLARE_MODULE(flashpache) = {
    STANDARD20_MODULE_STUFF,
    create_directory_config,
    merge_directory_config,
    NULL,
    NULL,
    directives,
    register_hooks
};
