//! Writes requests to upstream servers: an HTTP/1.1 head (RFC 9112 section 3), or the CGI meta-variables (RFC
//! 3875 section 4.1) for FastCGI.
//!
//! Called by the engine. Flash frames the message to the upstream itself, and describes the client itself: no
//! field of the client can change either. It must not decide which requests are forwarded, and never gets a
//! CONNECT.

use std::net::{IpAddr, SocketAddr};

use memchr::memchr;

use crate::client;
use crate::hop::{Field, Named, elements, is_hop_by_hop};
use crate::proxies::NamedHost;
use crate::request::fields::parse_length;
use crate::request::line::{is_token_byte, split_authority};
use crate::request::{Body, FIELDS_MAX, Method, Request, Version};
use crate::response::push_number;

/// A request as its wire has received it: HTTP/1 takes it from a head ([`Inbound::of_head`]); another version of HTTP has
/// fields of its own for method, scheme and authority.
#[derive(Clone, Debug)]
pub struct Inbound<'a> {
    /// Its path, query, host and version.
    pub request: &'a Request<'a>,
    /// The method; it is case-sensitive.
    pub method: &'a [u8],
    /// The scheme of the client's connection: `http` or `https`.
    pub scheme: &'a str,
    /// The host with its port, if it has one; empty if the client sent none.
    pub authority: &'a [u8],
    /// The host that a trusted proxy names as that of its client.
    pub named_host: NamedHost<'a>,
    /// The names and values of the fields, in order.
    pub fields: Vec<Field<'a>>,
}

/// The facts about a request that its client does not send.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// The client's address, which is written as [`client::address_text`] has it.
    pub peer: SocketAddr,
    /// The address that the client connected to, if it is known. Only for CGI.
    pub server: Option<SocketAddr>,
    /// The name of the user whose password was right. Only for CGI.
    pub user: Option<&'a [u8]>,
    /// The path that takes the place of the client's, percent-encoded. CGI has its `SCRIPT_NAME` for that.
    pub path: Option<&'a [u8]>,
    /// The query that takes the place of the client's.
    pub query: Option<&'a [u8]>,
    /// The client's request, if the upstream only decides whether it may be answered.
    pub about: Option<About<'a>>,
    /// A new request identifier, for a client that sent none of 1 to 128 letters, digits, and `_.:-`.
    pub request_id: &'a str,
    /// Whether to pass on the client's `Upgrade` (RFC 9110 section 7.8). After a 101, Flash must then relay
    /// all bytes unread. This is only for HTTP/1.1 clients whose `Connection` has `upgrade`. It has no effect
    /// for CGI, or if the client sent no `Upgrade`.
    pub upgrade: bool,
}

/// The request that an upstream decides about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Its method.
    pub method: &'a [u8],
    /// Its path, percent-encoded, without dot segments and empty ones.
    pub path: &'a [u8],
    /// Its query.
    pub query: Option<&'a [u8]>,
}

impl About<'_> {
    fn target(&self) -> Vec<u8> {
        let mut target = Vec::with_capacity(self.path.len());
        push_target(&mut target, self.path, self.query);
        target
    }
}

/// The script that answers a request. All paths are decoded.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// The absolute name of the root folder.
    pub document_root: &'a [u8],
    /// The part of the request's path that leads to the script; begins with `/`.
    pub script_name: &'a [u8],
    /// The rest of the request's path; empty, or begins with `/`.
    pub path_info: &'a [u8],
}

impl<'a> Inbound<'a> {
    /// A request of HTTP/1. `head` is the head that `request` was parsed from; other bytes have no fields.
    pub fn of_head(request: &'a Request<'a>, head: &'a [u8], scheme: &'a str) -> Self {
        let fields = fields(head);
        let mut words = request.line.split(|&byte| byte == b' ');
        let method = words.next().unwrap_or_default();
        let of_target = words.next().and_then(split_authority).map(|(authority, _)| authority);
        let of_field = || fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        // RFC 9112 section 3.2.2: the host in the target wins.
        let authority = of_target.or_else(|| of_field().map(|(_, value)| *value)).unwrap_or_default();
        let authority = if request.host.is_empty() { b"" } else { authority };
        Self { request, method, scheme, authority, named_host: NamedHost::default(), fields }
    }

    /// The authority of the client's own request, before any proxy.
    fn public_authority(&self) -> &'a [u8] {
        if self.named_host.authority.is_empty() { self.authority } else { self.named_host.authority }
    }

    /// How often an OPTIONS request may still be forwarded (RFC 9110 section 7.6.2). With 0, Flash must answer it itself.
    /// None if there is no bound; other methods have none.
    pub fn max_forwards(&self) -> Option<u64> {
        let is_options = self.request.method == Method::Options;
        let hops = |(name, value): &Field<'_>| is_max_forwards(name).then(|| parse_length(value)).flatten();
        self.fields.iter().filter(|_| is_options).find_map(hops)
    }

    /// Whether a request of HTTP/1 asks to change the protocol of its connection (RFC 9110, section 7.8) to one that can be
    /// passed on. One with a body does not, because its body would have to come first. HTTP/2 is another way to send
    /// requests: they would pass by every rule of this server.
    pub fn asks_upgrade(&self) -> bool {
        if self.request.version != Version::Http11 || !self.request.body.is_empty() {
            return false;
        }
        let begins = |text: &[u8], start: &[u8]| {
            text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start))
        };
        let is_http = |protocol: &[u8]| begins(protocol, b"h2") || begins(protocol, b"http");
        let mut protocols = self.values(b"upgrade").flat_map(elements).peekable();
        let has_upgrade = protocols.peek().is_some();
        let mut options = self.values(b"connection").flat_map(elements);
        let is_named = options.any(|option| option.eq_ignore_ascii_case(b"upgrade"));
        has_upgrade && is_named && !protocols.any(is_http)
    }

    /// The values of a field.
    fn values(&self, wanted: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
        let is_wanted = move |field: &&Field<'a>| field.0.eq_ignore_ascii_case(wanted);
        self.fields.iter().filter(is_wanted).map(|(_, value)| *value)
    }
}

/// The fields of a request head.
fn fields(head: &[u8]) -> Vec<Field<'_>> {
    let leading = head.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
    let Some(line_feed) = memchr(b'\n', &head[leading..]) else { return Vec::new() };
    let mut table = [httparse::EMPTY_HEADER; FIELDS_MAX];
    match httparse::parse_headers(&head[leading + line_feed + 1..], &mut table) {
        Ok(httparse::Status::Complete((_, headers))) => {
            headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect()
        }
        _ => Vec::new(),
    }
}

fn is_max_forwards(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"max-forwards")
}

fn is_request_id(value: &[u8]) -> bool {
    (1..=128).contains(&value.len())
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(byte))
}

/// Appends the HTTP/1.1 head of a request to an upstream, up to the framing of its body, which [`end_proxy_head`] adds.
///
/// The target is in origin-form, with query and, unless `forwarding` has another, path as the client sent them. `Host` is empty
/// if an HTTP/1.0 client sent none (RFC 9112 section 3.2). The client's fields are passed on, except those that concern only
/// its connection or only Flash, and those that only a proxy before the upstream can know (`X-Forwarded-*`). `Via`
/// gets one entry more (RFC 9110 section 7.6.3), and the `Max-Forwards` of OPTIONS is one less (section 7.6.2).
pub fn write_proxy_head(out: &mut Vec<u8>, inbound: &Inbound<'_>, forwarding: &Forwarding<'_>) {
    let sent = Sent::new(inbound, forwarding);
    out.extend_from_slice(inbound.method);
    out.push(b' ');
    let Forwarding { path, query, .. } = *forwarding;
    push_target(out, path.unwrap_or(inbound.request.path), query.or(inbound.request.query));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_field(out, b"Host", inbound.authority);
    let hops = inbound.max_forwards();
    for (name, value) in sent.passed_on() {
        match hops {
            Some(hops) if is_max_forwards(name) => push_field(out, name, &decimal(hops.saturating_sub(1))),
            _ => push_field(out, name, value),
        }
    }
    push_field(
        out,
        b"Via",
        match inbound.request.version {
            Version::Http10 => b"1.0 flash",
            Version::Http11 => b"1.1 flash",
            Version::Http2 => b"2.0 flash",
        },
    );
    push_field(out, b"Forwarded", &sent.forwarded());
    push_field(out, b"X-Forwarded-For", sent.peer.as_bytes());
    push_field(out, b"X-Forwarded-Proto", inbound.scheme.as_bytes());
    let authority = inbound.public_authority();
    if !authority.is_empty() {
        push_field(out, b"X-Forwarded-Host", authority);
    }
    if let Some(about) = forwarding.about {
        push_field(out, b"X-Forwarded-Method", about.method);
        push_field(out, b"X-Forwarded-Uri", &about.target());
    }
    push_field(out, b"X-Request-Id", sent.request_id);
    let protocols = inbound.values(b"upgrade").collect::<Vec<_>>().join(&b", "[..]);
    if forwarding.upgrade && !protocols.is_empty() {
        push_field(out, b"Connection", b"upgrade");
        push_field(out, b"Upgrade", &protocols);
    }
}

/// Ends the head of a request with the framing of its body to the upstream. It can differ from the client's.
pub fn end_proxy_head(out: &mut Vec<u8>, body: Body) {
    match body {
        Body::None => {}
        Body::Length(bytes) => push_field(out, b"Content-Length", &decimal(bytes)),
        Body::Chunked => push_field(out, b"Transfer-Encoding", b"chunked"),
    }
    out.extend_from_slice(b"\r\n");
}

/// Calls `param` with the `CONTENT_LENGTH` of a body, if it is known.
pub fn cgi_length(body: Body, param: impl FnOnce(&[u8], &[u8])) {
    if let Body::Length(bytes) = body {
        param(b"CONTENT_LENGTH", &decimal(bytes));
    }
}

/// Calls `param` with the name and value of each CGI meta-variable of a request, except the one of [`cgi_length`].
///
/// `REQUEST_URI` is path and query as sent, without the scheme and host of an absolute-form target, as nginx
/// has it. A client's field becomes `HTTP_*` if its name has only letters, digits and `-`: another character
/// could become `_` too, and then two fields would be one. The exceptions of [`write_proxy_head`] apply too.
pub fn each_cgi_variable(
    inbound: &Inbound<'_>,
    forwarding: &Forwarding<'_>,
    script: &Script<'_>,
    mut param: impl FnMut(&[u8], &[u8]),
) {
    let (sent, request) = (Sent::new(inbound, forwarding), inbound.request);
    server_variables(&sent, &mut param);
    script_variables(script, &mut param);
    param(b"REQUEST_METHOD", inbound.method);
    let mut target = Vec::with_capacity(request.line.len());
    push_target(&mut target, request.path, request.query);
    param(b"REQUEST_URI", &target);
    param(b"QUERY_STRING", forwarding.query.or(request.query).unwrap_or_default());
    param(
        b"SERVER_PROTOCOL",
        match request.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
            Version::Http2 => b"HTTP/2.0",
        },
    );
    if let (Some(content_type), true) = (inbound.values(b"content-type").next(), request.body != Body::None) {
        param(b"CONTENT_TYPE", content_type);
    }
    field_variables(&sent, &mut param);
}

/// The variables about the connection.
fn server_variables(sent: &Sent<'_>, param: &mut impl FnMut(&[u8], &[u8])) {
    let Forwarding { server, peer, user, .. } = sent.forwarding;
    let Inbound { request, scheme, named_host, .. } = sent.inbound;
    param(b"GATEWAY_INTERFACE", b"CGI/1.1");
    param(b"SERVER_SOFTWARE", b"flash");
    let usual = if *scheme == "https" { 443 } else { 80 };
    // Not that of the client's `Host`, which can name any.
    let port = named_host.port().or(server.map(|server| server.port())).unwrap_or(usual);
    let server = server.map(|server| server.ip().to_canonical());
    // RFC 3875 section 4.1.14: not empty, and in brackets if it is IPv6.
    let host = named_host.host().unwrap_or(request.host);
    match server {
        _ if !host.is_empty() => param(b"SERVER_NAME", host),
        Some(IpAddr::V4(server)) => param(b"SERVER_NAME", server.to_string().as_bytes()),
        Some(IpAddr::V6(server)) => param(b"SERVER_NAME", format!("[{server}]").as_bytes()),
        None => param(b"SERVER_NAME", b"localhost"),
    }
    param(b"SERVER_PORT", &decimal(port.into()));
    if let Some(server) = server {
        param(b"SERVER_ADDR", server.to_string().as_bytes());
    }
    param(b"REMOTE_ADDR", sent.peer.as_bytes());
    if !client::is_unix(peer.ip()) {
        param(b"REMOTE_PORT", &decimal(peer.port().into()));
    }
    param(b"REQUEST_SCHEME", scheme.as_bytes());
    if *scheme == "https" {
        // Apache's variable, by which applications choose the scheme of their links.
        param(b"HTTPS", b"on");
    }
    if let Some(user) = user {
        param(b"AUTH_TYPE", b"Basic");
        param(b"REMOTE_USER", user);
    }
}

/// The variables about the script.
fn script_variables(script: &Script<'_>, param: &mut impl FnMut(&[u8], &[u8])) {
    let Script { document_root, script_name, path_info } = *script;
    let root = document_root.strip_suffix(b"/").unwrap_or(document_root);
    param(b"DOCUMENT_ROOT", document_root);
    param(b"SCRIPT_NAME", script_name);
    param(b"SCRIPT_FILENAME", &[root, script_name].concat());
    if !path_info.is_empty() {
        param(b"PATH_INFO", path_info);
        param(b"PATH_TRANSLATED", &[root, path_info].concat());
    }
    // The CGI form of PHP refuses to run without it.
    param(b"REDIRECT_STATUS", b"200");
}

/// The variables `HTTP_*` (RFC 3875 section 4.1.18).
fn field_variables(sent: &Sent<'_>, param: &mut impl FnMut(&[u8], &[u8])) {
    let authority = sent.inbound.authority;
    if !authority.is_empty() {
        param(b"HTTP_HOST", authority);
    }
    let public = sent.inbound.public_authority();
    if !public.is_empty() {
        param(b"HTTP_X_FORWARDED_HOST", public);
    }
    param(b"HTTP_X_FORWARDED_FOR", sent.peer.as_bytes());
    param(b"HTTP_X_FORWARDED_PROTO", sent.inbound.scheme.as_bytes());
    if let Some(about) = sent.forwarding.about {
        param(b"HTTP_X_FORWARDED_METHOD", about.method);
        param(b"HTTP_X_FORWARDED_URI", &about.target());
    }
    param(b"HTTP_X_REQUEST_ID", sent.request_id);
    let is_plain = |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    let is_content_type = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
    let fields: Vec<Field<'_>> =
        sent.passed_on().filter(|(name, _)| is_plain(name) && !is_content_type(name)).collect();
    each_field_variable(&fields, param);
}

/// Calls `param` with the variable of each name among these fields, which has the values of all of them (RFC 3875 section 4.1.18).
pub(crate) fn each_field_variable(fields: &[Field<'_>], mut param: impl FnMut(&[u8], &[u8])) {
    for (place, (name, _)) in fields.iter().enumerate() {
        let is_same = |other: &Field<'_>| other.0.eq_ignore_ascii_case(name);
        if fields[..place].iter().any(is_same) {
            continue;
        }
        let values = fields.iter().filter(|other| is_same(other)).map(|(_, value)| *value);
        let upper = name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() });
        let variable: Vec<u8> = b"HTTP_".iter().copied().chain(upper).collect();
        let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
        param(&variable, &values.collect::<Vec<_>>().join(separator));
    }
}

/// A request, and what is found out about it once.
struct Sent<'a> {
    inbound: &'a Inbound<'a>,
    forwarding: &'a Forwarding<'a>,
    /// The client's address as text.
    peer: String,
    request_id: &'a [u8],
    named: Named<'a>,
}

impl<'a> Sent<'a> {
    fn new(inbound: &'a Inbound<'_>, forwarding: &'a Forwarding<'_>) -> Self {
        let is_valid_id =
            |field: &&Field<'_>| field.0.eq_ignore_ascii_case(b"x-request-id") && is_request_id(field.1);
        let sent_id = inbound.fields.iter().find(is_valid_id).map(|(_, value)| *value);
        Self {
            inbound,
            forwarding,
            peer: client::address_text(forwarding.peer.ip()),
            request_id: sent_id.unwrap_or(forwarding.request_id.as_bytes()),
            named: Named::new(&inbound.fields),
        }
    }

    /// The fields of the client that the upstream gets as they are.
    fn passed_on(&self) -> impl Iterator<Item = Field<'a>> {
        self.inbound
            .fields
            .iter()
            .copied()
            .filter(|(name, _)| !is_left_out(name) && !self.named.contains(name))
    }

    /// The value of `Forwarded` (RFC 7239 section 4).
    fn forwarded(&self) -> Vec<u8> {
        let node = match self.peer.as_str() {
            // Section 6.2: of a client without an address.
            client::UNIX => "unknown".to_owned(),
            peer if peer.contains(':') => format!("\"[{peer}]\""),
            peer => peer.to_owned(),
        };
        let mut value = [b"for=", node.as_bytes()].concat();
        // A host has no byte that must be escaped between quotes.
        match self.inbound.public_authority() {
            [] => {}
            host if host.iter().all(|&byte| is_token_byte(byte)) => {
                value.extend_from_slice(&[b";host=", host].concat());
            }
            host => value.extend_from_slice(&[b";host=\"", host, b"\""].concat()),
        }
        value.extend_from_slice(b";proto=");
        value.extend_from_slice(self.inbound.scheme.as_bytes());
        value
    }
}

/// The fields that Flash writes itself or has obeyed itself, and all by which a proxy describes the client.
const LEFT_OUT: &[&[u8]] = &[
    b"host",
    b"content-length",
    b"expect",
    b"forwarded",
    // CGI would make HTTP_PROXY of it, by which many libraries choose a proxy.
    b"proxy",
    b"proxy-authorization",
    b"x-real-ip",
    b"x-request-id",
];

/// Beginnings of such names. An upstream obeys `X-Accel-Mapping` and `X-Sendfile-Type` when it chooses the file
/// that Flash is to send, so a client must not set them.
const LEFT_OUT_BEGINNINGS: &[&[u8]] = &[b"x-forwarded-", b"x-accel-", b"x-sendfile"];

/// Whether a field of the client is never passed on. Names count as equal if they differ only in case and in
/// the characters between words, because CGI and its successors make `_` of all of them: `X_Forwarded-For`.
fn is_left_out(name: &[u8]) -> bool {
    // Longer than all names that are compared.
    let mut plain = [0; 24];
    for (plain, byte) in plain.iter_mut().zip(name) {
        *plain = if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    }
    let plain = &plain[..name.len().min(plain.len())];
    is_hop_by_hop(plain)
        || LEFT_OUT.contains(&plain)
        || LEFT_OUT_BEGINNINGS.iter().any(|beginning| plain.starts_with(beginning))
}

fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The target in origin-form, or `*` (RFC 9112 sections 3.2.1 and 3.2.4).
fn push_target(out: &mut Vec<u8>, path: &[u8], query: Option<&[u8]>) {
    out.extend_from_slice(path);
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

fn decimal(number: u64) -> Vec<u8> {
    let mut digits = Vec::new();
    push_number(&mut digits, number);
    digits
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;
