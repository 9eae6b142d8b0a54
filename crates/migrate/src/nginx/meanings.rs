//! The directives that need no counterpart, and the reasons why others have none.

use crate::directive::is_among;

/// The meaning of a directive that is not carried over.
pub(super) enum Meaning {
    /// Flash needs it not, or does it anyway.
    Nothing,
    Lost(&'static str),
    /// Nobody may pass, because Flash does not check what it asks for.
    Closed(&'static str),
    /// No such check here.
    Opened,
}

/// Directives that Flash does by itself, tunes in its own way, or that have an effect only through others.
const NOTHING: &str = "
    absolute_redirect accept_mutex accept_mutex_delay access_log aio aio_write autoindex_exact_size
    autoindex_localtime break brotli_comp_level brotli_types client_body_buffer_size
    client_body_in_file_only client_body_in_single_buffer client_body_temp_path client_body_timeout
    client_header_buffer_size connection_pool_size daemon default_type directio directio_alignment
    disable_symlinks env error_log events expires_by_type fastcgi_buffer_size fastcgi_buffering
    fastcgi_buffers fastcgi_busy_buffers_size fastcgi_index fastcgi_keep_conn fastcgi_send_timeout
    fastcgi_split_path_info fastcgi_temp_file_write_size fastcgi_temp_path geo gunzip gzip_buffers
    gzip_comp_level gzip_disable gzip_http_version gzip_min_length gzip_proxied gzip_types gzip_vary http
    http2_body_preread_size http2_chunk_size http2_max_concurrent_streams http2_recv_timeout
    ignore_invalid_headers include keepalive_disable keepalive_requests keepalive_time keyval_zone
    large_client_header_buffers limit_conn_log_level limit_conn_status limit_rate_after
    limit_req_log_level limit_req_status lingering_close lingering_time lingering_timeout listen
    load_module location lock_file log_format log_not_found log_subrequest map map_hash_bucket_size
    map_hash_max_size master_process max_ranges merge_slashes msie_padding msie_refresh multi_accept
    open_file_cache open_file_cache_errors open_file_cache_min_uses open_file_cache_valid
    open_log_file_cache output_buffers pcre_jit pid port_in_redirect postpone_output proxy_buffer_size
    proxy_buffers proxy_busy_buffers_size proxy_cache_path proxy_headers_hash_bucket_size
    proxy_headers_hash_max_size proxy_http_version proxy_max_temp_file_size proxy_next_upstream
    proxy_next_upstream_timeout proxy_next_upstream_tries proxy_pass_header proxy_send_timeout
    proxy_socket_keepalive proxy_ssl_ciphers proxy_ssl_protocols proxy_ssl_server_name
    proxy_ssl_session_reuse proxy_temp_file_write_size proxy_temp_path read_ahead real_ip_recursive
    recursive_error_pages request_pool_size reset_timedout_connection resolver resolver_timeout
    rewrite_log satisfy scgi_temp_path send_lowat send_timeout sendfile sendfile_max_chunk server
    server_name server_name_in_redirect server_names_hash_bucket_size server_names_hash_max_size
    server_tokens set split_clients ssl ssl_buffer_size ssl_ciphers ssl_conf_command ssl_dhparam
    ssl_early_data ssl_ecdh_curve ssl_prefer_server_ciphers ssl_protocols ssl_reject_handshake
    ssl_session_cache ssl_session_ticket_key ssl_session_tickets ssl_session_timeout ssl_stapling_file
    ssl_stapling_verify ssl_trusted_certificate tcp_nodelay tcp_nopush thread_pool timer_resolution types
    types_hash_bucket_size types_hash_max_size underscores_in_headers uninitialized_variable_warn upstream
    use uwsgi_temp_path variables_hash_bucket_size variables_hash_max_size worker_aio_requests
    worker_cpu_affinity worker_priority worker_rlimit_core worker_rlimit_nofile worker_shutdown_timeout
    working_directory
";

/// The reasons for the others. A name that ends with `_` stands for all that begin with it.
const LOST: &[(&str, &str)] = &[
    ("limit_rate", "a rule with `bandwidth` bounds all answers to a client together, not each by itself"),
    ("limit_except", "Flash answers GET, HEAD and OPTIONS for files, and all methods on routes"),
    ("proxy_cache", "Flash caches no answers of servers"),
    ("proxy_cache_", "Flash caches no answers of servers"),
    ("fastcgi_cache", "Flash caches no answers of servers"),
    ("fastcgi_cache_", "Flash caches no answers of servers"),
    ("proxy_intercept_errors", "errors that servers answer stay as they are"),
    ("fastcgi_intercept_errors", "errors that servers answer stay as they are"),
    ("ssl_stapling", "Flash asks no issuer: `ocsp` takes a file"),
    ("ssl_password_file", "Flash takes keys without a password"),
    ("stub_status", "`flash stats` and `admin` show the load (docs/stats.md)"),
    ("uwsgi_", "Flash speaks HTTP and FastCGI with applications"),
    ("scgi_", "Flash speaks HTTP and FastCGI with applications"),
    ("grpc_", "Flash speaks HTTP/1.1 and FastCGI with applications"),
    ("memcached_", "Flash speaks HTTP and FastCGI with applications"),
    ("sub_filter", "Flash does not change contents"),
    ("sub_filter_", "Flash does not change contents"),
    ("ssi", "Flash does not change contents"),
    ("dav_", "Flash does not change files"),
    ("stream", "Flash serves HTTP only"),
    ("mail", "Flash serves HTTP only"),
];

/// Checks of clients. Without them their paths would be open.
const CLOSED: &[(&str, &str)] = &[
    ("auth_jwt", "Flash checks no tokens"),
    ("ssl_verify_client", "Flash checks no certificates of clients"),
    ("secure_link", "Flash checks no links"),
];

/// The meaning of a directive with this first argument.
pub(super) fn meaning(name: &str, first: &str) -> Meaning {
    if let Some((_, why)) = CLOSED.iter().find(|(closed, _)| *closed == name) {
        return if first == "off" || first == "optional" { Meaning::Opened } else { Meaning::Closed(why) };
    }
    let is_part = |known: &str| if known.ends_with('_') { name.starts_with(known) } else { known == name };
    let of_closed = ["auth_request_set", "ssl_client_certificate", "ssl_verify_depth", "ssl_crl"];
    match LOST.iter().find(|(known, _)| is_part(known)) {
        _ if is_among(name, NOTHING) || of_closed.contains(&name) || first == "off" => Meaning::Nothing,
        Some((_, why)) => Meaning::Lost(why),
        None => Meaning::Lost("Flash has nothing like it"),
    }
}

/// Whether a field that nginx sends to a server is one that Flash sends too.
pub(super) fn is_sent(name: &str, args: &[String]) -> bool {
    let is_client = args
        .get(1)
        .is_some_and(|value| ["$host", "$http_host", "$host:$server_port"].contains(&value.as_str()));
    let sent = [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-server",
        "x-request-id",
        "forwarded",
        "upgrade",
        "connection",
    ];
    (name.eq_ignore_ascii_case("host") && is_client) || sent.contains(&name.to_ascii_lowercase().as_str())
}

/// The parameters of FastCGI that Flash passes.
const PARAMS: &str = "
    AUTH_TYPE CONTENT_LENGTH CONTENT_TYPE DOCUMENT_ROOT DOCUMENT_URI GATEWAY_INTERFACE HTTPS HTTP_PROXY
    PATH_INFO PATH_TRANSLATED QUERY_STRING REDIRECT_STATUS REMOTE_ADDR REMOTE_PORT REMOTE_USER
    REQUEST_METHOD REQUEST_SCHEME REQUEST_URI SCRIPT_FILENAME SCRIPT_NAME SERVER_ADDR SERVER_NAME
    SERVER_PORT SERVER_PROTOCOL SERVER_SOFTWARE
";

pub(super) fn is_param(name: &str) -> bool {
    is_among(name, PARAMS)
}

/// A root as an absolute path: Debian's nginx takes relative ones from this folder.
pub(super) fn folder(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/usr/share/nginx/{path}") }
}
