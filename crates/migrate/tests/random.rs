//! Files made of the words that the parsers look for, combined at random and partly damaged: whatever a file holds, the result is a
//! configuration or an error with a line of the file.

use std::fs;
use std::path::Path;

use flash_migrate::{Server, migrate};

/// Cases for each server. The numbers are the same in each run.
const CASES: u64 = 1_500;

const NGINX: &[&str] = &[
    "server {",
    "location / {",
    "location = /a {",
    "location ~ \\.(a|b)$ {",
    "location ^~ /a/ {",
    "location @x {",
    "http {",
    "upstream u {",
    "if ($host = a.b) {",
    "if (!-e $request_filename) {",
    "types {",
    "}",
    "}",
    "}",
    ";",
    "{",
    "\n",
    "\n",
    "listen 80;",
    "listen [::]:443 ssl default_server;",
    "listen unix:/x;",
    "listen 99999999999;",
    "server_name a.b *.c _ ~x;",
    "server_name é;",
    "root /a;",
    "root b;",
    "root $c;",
    "alias /a/b/;",
    "alias /a/$1;",
    "index a.php b;",
    "index;",
    "autoindex on;",
    "try_files $uri $uri/ /i.html;",
    "try_files $uri @x;",
    "try_files;",
    "try_files =404;",
    "return 301 https://$host$request_uri;",
    "return 302 /a$1;",
    "return;",
    "return 444;",
    "return 999999;",
    "rewrite ^/a(.*)$ /b$1 last;",
    "rewrite ^(.*)/c$ $1/ permanent;",
    "rewrite;",
    "rewrite ( x;",
    "add_header A \"b\" always;",
    "add_header A;",
    "add_header Strict-Transport-Security max-age=;",
    "expires 1y;",
    "expires 99999999999999999999d;",
    "expires;",
    "error_page 404 /e.html;",
    "error_page;",
    "error_page 404 =200 /f;",
    "allow 10.0.0.1/0;",
    "deny all;",
    "deny;",
    "proxy_pass http://u/x;",
    "proxy_pass http://unix:;",
    "proxy_pass https://[::1];",
    "fastcgi_pass u;",
    "server 127.0.0.1:80 weight=0;",
    "server unix:x;",
    "ssl_certificate a.pem;",
    "ssl_certificate_key b;",
    "include *.none;",
    "include none;",
    "charset é;",
    "access_log;",
    "access_log /l x;",
    "text/html é.;",
    "keepalive_timeout 0;",
    "client_max_body_size 9999999999g;",
    "set_real_ip_from 1.2.3.4;",
    "real_ip_header X;",
    "'",
    "\"",
    "\\",
    "#",
    "$",
    "${",
    "\u{1}",
    "é",
    "**",
    "location /*/ {",
    "a_by_lua_block {",
];

const CADDY: &[&str] = &[
    "a.b {\n",
    ":80 {\n",
    "http://c, d {\n",
    "(s) {\n",
    "{\n",
    "}\n",
    "}\n",
    "}\n",
    "{",
    "}",
    "\n",
    "\n",
    "\n",
    "import s\n",
    "import none\n",
    "root * /a\n",
    "root /b\n",
    "root\n",
    "file_server browse\n",
    "file_server {\n",
    "index a.php /b\n",
    "try_files {path} /i.html\n",
    "try_files\n",
    "redir /a* https://x{uri} permanent\n",
    "redir\n",
    "redir /é /x\n",
    "rewrite * /x{path}\n",
    "rewrite /a\n",
    "header X y\n",
    "header -X\n",
    "header /a* {\n",
    "header\n",
    "header Strict-Transport-Security max-age=1\n",
    "respond /x 403\n",
    "respond\n",
    "abort\n",
    "reverse_proxy /a/* localhost:1 {\n",
    "reverse_proxy unix//x\n",
    "reverse_proxy :0\n",
    "php_fastcgi unix//run/x\n",
    "php_fastcgi\n",
    "handle /a/* {\n",
    "handle {\n",
    "handle_path /a/* {\n",
    "route {\n",
    "@m path /a* *.b\n",
    "@m not path /c\n",
    "@m\n",
    "redir @m /x\n",
    "tls a b\n",
    "tls internal\n",
    "tls {\n",
    "bind ::1\n",
    "bind\n",
    "log {\n",
    "output file /x\n",
    "output\n",
    "encode gzip\n",
    "\"",
    "`",
    "#",
    "\\\n",
    "<<X\n",
    "é",
    "\u{1}",
    ",",
    "basic_auth /x/* {\n",
    "basic_auth\n",
    "forward_auth /x/* 127.0.0.1:1 {\nuri /auth\ncopy_headers X-A X-B>C\n",
    "forward_auth a:1\n",
];

const APACHE: &[&str] = &[
    "<VirtualHost *:80>\nDocumentRoot /a\nServerName c.d\n</VirtualHost>\n",
    "<VirtualHost a:443>\nSSLEngine on\nRewriteRule ^/b(.*) /$1 [R]\n</VirtualHost>\n",
    "</VirtualHost>\n",
    "<Directory /a/b>\nRequire all denied\n</Directory>\n",
    "<FilesMatch \"\\.(js|css)$\">\nHeader set A b\n</FilesMatch>\n",
    "<Location /x>\nRequire ip 1.2.3.4\nOptions Indexes\n</Location>\n",
    "<IfModule a>\nDocumentRoot /a/b\n</IfModule>\n",
    ">\n",
    "DocumentRoot /a\n",
    "DocumentRoot b\n",
    "ServerName a.b:80\n",
    "ServerAlias *.c é\n",
    "DirectoryIndex a.php b\n",
    "Options Indexes\n",
    "Redirect permanent /a https://b/\n",
    "Redirect /\n",
    "Redirect 999 /a /b\n",
    "Redirect\n",
    "RedirectMatch ^/x(.*)$ /y$1\n",
    "RewriteRule\n",
    "RewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]\n",
    "RewriteCond %{REQUEST_FILENAME} !-f\n",
    "RewriteRule . /i.html [L]\n",
    "RewriteRule ^a/(.*)$ é$9 [R]\n",
    "Header set A b\n",
    "Header always\n",
    "Header\n",
    "Header unset ETag\n",
    "ExpiresDefault \"access plus 9999999999999999999 years\"\n",
    "ExpiresDefault A\n",
    "ExpiresByType text/css \"access plus 1 day\"\n",
    "ErrorDocument 404 /e.html\n",
    "ErrorDocument\n",
    "FallbackResource /i\n",
    "Alias /x /a/y\n",
    "Alias\n",
    "ProxyPass /p http://127.0.0.1:1/p\n",
    "ProxyPass\n",
    "SetHandler \"proxy:unix:/x|fcgi://y\"\n",
    "Require all denied\n",
    "Require ip 10.0.0.0/99 ::/0\n",
    "Require\n",
    "Deny from all\n",
    "SSLEngine on\n",
    "SSLCertificateFile a\n",
    "Define a ${a}${a}\n",
    "${a}\n",
    "${\n",
    "\"\n",
    "'\n",
    "\\\n",
    "#\n",
    "é\n",
    "\u{1}\n",
    "Include none\n",
    "Listen 0\n",
    "Listen é\n",
    "KeepAliveTimeout 5\n",
    "AddType a/b .c\n",
    "AddType\n",
];

/// A number from the ones before it (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn made(words: &[&str], state: &mut u64) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..next(state) % 40 {
        text.push_str(words[(next(state) % words.len() as u64) as usize]);
        text.push(if next(state).is_multiple_of(4) { '\n' } else { ' ' });
    }
    let mut open = text.matches('{').count().saturating_sub(text.matches('}').count());
    if !next(state).is_multiple_of(4) {
        while open > 0 {
            text.push('}');
            open -= 1;
        }
    }
    let mut bytes = text.into_bytes();
    if next(state).is_multiple_of(4) && !bytes.is_empty() {
        let at = (next(state) % bytes.len() as u64) as usize;
        bytes[at] = next(state) as u8;
    }
    bytes
}

/// Whether the quotes of a line of TOML are closed, and nothing in it is a control character.
fn is_sound(line: &str) -> bool {
    let mut is_open = false;
    let mut is_escaped = false;
    for c in line.chars() {
        match c {
            '"' if !is_escaped => is_open = !is_open,
            c if c.is_control() => return false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    !is_open || line.starts_with('#')
}

fn check(server: Server, file: &Path, bytes: &[u8]) -> bool {
    fs::write(file, bytes).unwrap();
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    let shown = || bytes.escape_ascii().to_string();
    match migrate(server, file) {
        Ok(migration) => {
            assert!(migration.toml.lines().all(is_sound), "{}\n{}", shown(), migration.toml);
            assert!(
                migration.notes.iter().all(|note| note.position.line <= lines && !note.text.is_empty()),
                "{}",
                shown()
            );
            true
        }
        Err(failure) => {
            assert!(failure.position.line <= lines && !failure.why.is_empty(), "{}: {failure}", shown());
            false
        }
    }
}

fn run(server: Server, words: &[&str], name: &str) {
    let file = std::env::temp_dir().join(format!("flash-migrate-{}-{name}", std::process::id()));
    let mut state = 1;
    let mut valid = 0;
    for _ in 0..CASES {
        let bytes = made(words, &mut state);
        valid += u64::from(check(server, &file, &bytes));
    }
    fs::remove_file(&file).unwrap();
    assert!(valid > CASES / 50, "hardly any file was valid: {valid}");
}

#[test]
fn nginx() {
    run(Server::Nginx, NGINX, "nginx");
}

#[test]
fn caddy() {
    run(Server::Caddy, CADDY, "caddy");
}

#[test]
fn apache() {
    run(Server::Apache, APACHE, "apache");
}
