
/*
 * Roots on file systems that cannot tell what is in memory (NFS, FUSE) are
 * refused when the configuration is read.  The mount table is read instead of
 * statfs(), which can hang on just those file systems.  For the same reason
 * symbolic links are not followed: a root that leads to such a file system
 * through a link is not seen.
 */

#include "ngx_http_flash_gate.h"

#include <mntent.h>


#define NGX_HTTP_FLASH_GATE_MOUNT_BYTES  8192
#define NGX_HTTP_FLASH_GATE_TYPE_BYTES   64


static ngx_uint_t ngx_http_flash_gate_unfit_type(char *type);
static ngx_uint_t ngx_http_flash_gate_under(char *point, ngx_str_t *path);


static char  *ngx_http_flash_gate_unfit_types[] = {
    "nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "fuse", "fuseblk",
    NULL
};


/* Returns the type of the unfit file system that holds the path, or NULL. */

ngx_str_t *
ngx_http_flash_gate_unfit_mount(ngx_conf_t *cf, ngx_str_t *path)
{
    FILE           *table;
    char            line[NGX_HTTP_FLASH_GATE_MOUNT_BYTES];
    size_t          length, longest;
    u_char          unfit[NGX_HTTP_FLASH_GATE_TYPE_BYTES];
    ngx_str_t      *type;
    struct mntent   mount;

    table = setmntent("/proc/self/mounts", "re");
    if (table == NULL) {
        return NULL;
    }

    longest = 0;
    unfit[0] = '\0';

    while (getmntent_r(table, &mount, line, sizeof(line))) {
        length = ngx_strlen(mount.mnt_dir);

        /* a later mount on the same point covers an earlier one */

        if (length >= longest
            && ngx_http_flash_gate_under(mount.mnt_dir, path))
        {
            longest = length;
            (void) ngx_cpystrn(unfit, (u_char *) mount.mnt_type,
                               sizeof(unfit));
        }
    }

    (void) endmntent(table);

    if (!ngx_http_flash_gate_unfit_type((char *) unfit)) {
        return NULL;
    }

    type = ngx_palloc(cf->pool, sizeof(ngx_str_t));
    if (type == NULL) {
        return NULL;
    }

    type->len = ngx_strlen(unfit);
    type->data = unfit;
    type->data = ngx_pstrdup(cf->pool, type);

    return type->data ? type : NULL;
}


static ngx_uint_t
ngx_http_flash_gate_unfit_type(char *type)
{
    char  **unfit;

    if (ngx_strncmp(type, "fuse.", 5) == 0) {
        return 1;
    }

    for (unfit = ngx_http_flash_gate_unfit_types; *unfit; unfit++) {

        if (ngx_strcmp(type, *unfit) == 0) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_flash_gate_under(char *point, ngx_str_t *path)
{
    size_t  length;

    length = ngx_strlen(point);

    if (length == 1) {
        return 1;
    }

    return path->len >= length
           && ngx_strncmp(path->data, point, length) == 0
           && (path->len == length || path->data[length] == '/');
}
