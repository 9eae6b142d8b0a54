
/*
 * ngx_http_flash_gate_module: directives, and how the parts are put into
 * nginx.  README.md says how it is built and used, ngx_http_flash_gate.h what
 * the other files do.
 */

#include "ngx_http_flash_gate.h"


#define NGX_HTTP_FLASH_GATE_WINDOW       (512 * 1024)
#define NGX_HTTP_FLASH_GATE_TIMEOUT      30000
#define NGX_HTTP_FLASH_GATE_TIMEOUT_MAX  3600000


static char *ngx_http_flash_gate_set_backend(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_flash_gate_set_names(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_flash_gate_set_timeout(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static char *ngx_http_flash_gate_set_window(ngx_conf_t *cf,
    ngx_command_t *cmd, void *conf);
static void *ngx_http_flash_gate_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_flash_gate_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_flash_gate_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_flash_gate_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_flash_gate_check_location(ngx_conf_t *cf,
    ngx_http_flash_gate_loc_conf_t *conf);
static ngx_int_t ngx_http_flash_gate_init(ngx_conf_t *cf);


static ngx_conf_enum_t  ngx_http_flash_gate_untestable[] = {
    { ngx_string("ask"), NGX_HTTP_FLASH_GATE_ASK },
    { ngx_string("pass"), NGX_HTTP_FLASH_GATE_PASS },
    { ngx_null_string, 0 }
};


static ngx_command_t  ngx_http_flash_gate_commands[] = {

    { ngx_string("flash_gate"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF
                        |NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_flash_gate_loc_conf_t, enable),
      NULL },

    { ngx_string("flash_gate_backend"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_flash_gate_set_backend,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("flash_gate_names"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_flash_gate_set_names,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("flash_gate_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_flash_gate_set_timeout,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_flash_gate_loc_conf_t, timeout),
      NULL },

    { ngx_string("flash_gate_window"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_flash_gate_set_window,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_flash_gate_loc_conf_t, window),
      NULL },

    { ngx_string("flash_gate_untestable"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_flash_gate_loc_conf_t, untestable),
      &ngx_http_flash_gate_untestable },

    { ngx_string("flash_gate_force"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_flash_gate_loc_conf_t, force),
      NULL },

    { ngx_string("flash_gate_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_flash_gate_status,
      0,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_flash_gate_module_ctx = {
    ngx_http_flash_gate_add_variables,     /* preconfiguration */
    ngx_http_flash_gate_init,              /* postconfiguration */

    ngx_http_flash_gate_create_main_conf,  /* create main configuration */
    ngx_http_flash_gate_init_main_conf,    /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_flash_gate_create_loc_conf,   /* create location configuration */
    ngx_http_flash_gate_merge_loc_conf     /* merge location configuration */
};


ngx_module_t  ngx_http_flash_gate_module = {
    NGX_MODULE_V1,
    &ngx_http_flash_gate_module_ctx,       /* module context */
    ngx_http_flash_gate_commands,          /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_flash_gate_init_process,      /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_flash_gate_exit_process,      /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static char *
ngx_http_flash_gate_set_backend(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_flash_gate_main_conf_t  *gmcf = conf;

    ngx_str_t           *value;
    struct sockaddr_un   address;

    if (gmcf->backend.data) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len < 6 || ngx_strncmp(value[1].data, "unix:/", 6) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is no socket of a flash backend: it must "
                           "be \"unix:\" and an absolute path", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (value[1].len - 5 >= sizeof(address.sun_path)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path of the socket \"%V\" is longer than %uz "
                           "bytes", &value[1], sizeof(address.sun_path) - 1);
        return NGX_CONF_ERROR;
    }

    gmcf->backend.data = value[1].data + 5;
    gmcf->backend.len = value[1].len - 5;

    return NGX_CONF_OK;
}


static char *
ngx_http_flash_gate_set_names(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_flash_gate_loc_conf_t  *glcf = conf;

    ngx_str_t                         *value;
    ngx_uint_t                         i;
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    if (glcf->names != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    if (cf->args->nelts - 1 > NGX_HTTP_FLASH_GATE_NAMES) {
        return "has more than 8 names";
    }

    glcf->names = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                   sizeof(ngx_http_complex_value_t));
    if (glcf->names == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (value[i].len == 0
            || (value[i].data[0] != '/' && value[i].data[0] != '$'))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "the name \"%V\" is no absolute path: it must "
                               "begin with a slash or a variable", &value[i]);
            return NGX_CONF_ERROR;
        }

        cv = ngx_array_push(glcf->names);

        ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

        ccv.cf = cf;
        ccv.value = &value[i];
        ccv.complex_value = cv;
        ccv.zero = 1;

        if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_flash_gate_set_timeout(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                            *rv;
    ngx_http_flash_gate_loc_conf_t  *glcf = conf;

    rv = ngx_conf_set_msec_slot(cf, cmd, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (glcf->timeout < 1 || glcf->timeout > NGX_HTTP_FLASH_GATE_TIMEOUT_MAX) {
        return "must be between 1ms and 1h";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_flash_gate_set_window(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                            *rv;
    ngx_http_flash_gate_loc_conf_t  *glcf = conf;

    rv = ngx_conf_set_size_slot(cf, cmd, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (glcf->window < NGX_HTTP_FLASH_GATE_FORCED
        || glcf->window > FLASH_RANGE_MAX)
    {
        return "must be between 4k and 1m";
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_flash_gate_create_main_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_flash_gate_main_conf_t));
}


static char *
ngx_http_flash_gate_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_flash_gate_main_conf_t  *gmcf = conf;

    if (gmcf->backend.data == NULL) {
        ngx_str_set(&gmcf->backend, FLASH_SOCKET);
    }

    gmcf->zone = ngx_http_flash_gate_add_zone(cf);

    return gmcf->zone ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static void *
ngx_http_flash_gate_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_flash_gate_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_flash_gate_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->enable = NGX_CONF_UNSET;
    conf->force = NGX_CONF_UNSET;
    conf->untestable = NGX_CONF_UNSET_UINT;
    conf->timeout = NGX_CONF_UNSET_MSEC;
    conf->window = NGX_CONF_UNSET_SIZE;
    conf->names = NGX_CONF_UNSET_PTR;

    return conf;
}


static char *
ngx_http_flash_gate_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_flash_gate_loc_conf_t  *prev = parent;
    ngx_http_flash_gate_loc_conf_t  *conf = child;

    ngx_conf_merge_value(conf->enable, prev->enable, 0);
    ngx_conf_merge_value(conf->force, prev->force, 0);
    ngx_conf_merge_uint_value(conf->untestable, prev->untestable,
                              NGX_HTTP_FLASH_GATE_ASK);
    ngx_conf_merge_msec_value(conf->timeout, prev->timeout,
                              NGX_HTTP_FLASH_GATE_TIMEOUT);
    ngx_conf_merge_size_value(conf->window, prev->window,
                              NGX_HTTP_FLASH_GATE_WINDOW);
    ngx_conf_merge_ptr_value(conf->names, prev->names, NULL);

    conf->root = prev->root;

    if (conf->enable) {
        return ngx_http_flash_gate_check_location(cf, conf);
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_flash_gate_check_location(ngx_conf_t *cf,
    ngx_http_flash_gate_loc_conf_t *conf)
{
    ngx_str_t                        *type;
    ngx_http_core_loc_conf_t         *clcf;
    ngx_http_flash_gate_main_conf_t  *gmcf;

    gmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_flash_gate_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    gmcf->used = 1;

    if (clcf->aio != NGX_HTTP_AIO_OFF) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"flash_gate on\" and \"aio\" are both set in location "
                      "\"%V\": aio reads files in other threads, past the "
                      "gate; set \"aio off\" or \"flash_gate off\" there",
                      &clcf->name);
        return NGX_CONF_ERROR;
    }

    if (clcf->directio != NGX_OPEN_FILE_DIRECTIO_OFF) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"flash_gate on\" and \"directio\" are both set in "
                      "location \"%V\": directio reads past the page cache, "
                      "so every read waits for the disk; set \"directio off\" "
                      "or \"flash_gate off\" there", &clcf->name);
        return NGX_CONF_ERROR;
    }

    /* the root of the enclosing block has been checked there */

    if (clcf->root_lengths == NULL && clcf->root.len
        && clcf->root.data != conf->root)
    {
        type = ngx_http_flash_gate_unfit_mount(cf, &clcf->root);

        if (type) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"flash_gate on\" and the root \"%V\" on a %V file "
                          "system, in location \"%V\": such a file system "
                          "does not tell what is in memory; set "
                          "\"flash_gate off\" there",
                          &clcf->root, type, &clcf->name);
            return NGX_CONF_ERROR;
        }

        conf->root = clcf->root.data;
    }

    if (conf->timeout >= clcf->send_timeout) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"flash_gate_timeout\" is not shorter than "
                      "\"send_timeout\" in location \"%V\": a body that waits "
                      "for the disk ends as if its client were slow",
                      &clcf->name);
    }

    return NGX_CONF_OK;
}


/*
 * The phase's handlers run from the last pushed to the first: one handler is
 * pushed, the other is moved before all others.
 */

static ngx_int_t
ngx_http_flash_gate_init(ngx_conf_t *cf)
{
    ngx_array_t                      *a;
    ngx_http_handler_pt              *h;
    ngx_http_core_main_conf_t        *cmcf;
    ngx_http_flash_gate_main_conf_t  *gmcf;

    gmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_flash_gate_module);

    if (!gmcf->used) {
        return NGX_OK;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    a = &cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers;

    h = ngx_array_push_n(a, 2);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h = a->elts;

    ngx_memmove(&h[1], &h[0],
                (a->nelts - 2) * sizeof(ngx_http_handler_pt));

    h[0] = ngx_http_flash_gate_last_handler;
    h[a->nelts - 1] = ngx_http_flash_gate_first_handler;

    ngx_http_flash_gate_contents_init();

    return NGX_OK;
}
