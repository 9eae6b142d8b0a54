//! Encodes and frames the heads of answers. Called by [`h2`](super).

use flash_http::h2::frame::push_headers;
use flash_http::h2::{Encoder, Indexing};
use flash_http::response::{ServerField, Status, push_number};

use super::H2;
use crate::caches::Version;
use crate::context::Core;
use crate::handler::{About, CommonFields, Extent, each_own_field, each_shared_field};
use crate::head_changes::{Changes, HeadChanges};

/// The head of an answer.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) status: Status,
    pub(super) about: &'a About,
    pub(super) length: Option<u64>,
}

impl H2 {
    /// Frames the head of an answer.
    pub(super) fn push_head<F>(
        &mut self,
        core: &mut Core<F>,
        stream: (u32, bool),
        changes: Option<&HeadChanges>,
        head: Head<'_>,
    ) {
        core.counters.heads_made += 1;
        self.push_common_head((CommonFields::of(core), changes), stream, head);
    }

    pub(super) fn push_common_head(
        &mut self,
        (common, changes): (CommonFields, Option<&HeadChanges>),
        (id, ends_stream): (u32, bool),
        head: Head<'_>,
    ) {
        let encoder = &mut self.encoder;
        let changes = changes.and_then(|changes| changes.of(head.status));
        push_headers(&mut self.out, id, ends_stream, |out| {
            begin_head(encoder, out, (head.status, common), (changes, false));
            if let About::File(version, Extent::Whole) = head.about
                && !version.is_listing()
                && head.length == Some(version.stat.size_bytes)
                && changes.is_none_or(Changes::extend_files)
            {
                encoder.field(out, b"content-type", version.content_type.as_bytes(), Indexing::Shared);
                out.extend_from_slice(version.kept_h2_fields(|| own_fields(version)));
                let shared = |name: &str, value: &[u8]| push_field(encoder, out, name.as_bytes(), value);
                return each_shared_field(version, shared);
            }
            head.about
                .each_leading_field(|name, value| push_kept(encoder, out, changes, (name.as_bytes(), value)));
            if let Some(bytes) = head.length {
                let mut digits = Vec::with_capacity(20);
                push_number(&mut digits, bytes);
                encoder.field(out, b"content-length", &digits, Indexing::Own);
            }
            head.about.each_trailing_field(|name, value| {
                push_kept(encoder, out, changes, (name.as_bytes(), value));
            });
        });
        self.frame_budget.answered();
    }
}

/// The length and the validators of a whole file, which are in no table and so the same for all connections.
fn own_fields(version: &Version) -> Box<[u8]> {
    let (mut encoder, mut block, mut length) = (Encoder::for_kept_fields(), Vec::new(), Vec::new());
    push_number(&mut length, version.stat.size_bytes);
    encoder.field(&mut block, b"content-length", &length, Indexing::Own);
    each_own_field(version, |name, value| push_field(&mut encoder, &mut block, name.as_bytes(), value));
    block.into()
}

/// Encodes the first fields of a head: those that every answer has, and those that rules add. `has_hsts` tells whether the
/// answer has `Strict-Transport-Security`.
pub(super) fn begin_head(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    (status, CommonFields { date, server }): (Status, CommonFields),
    (changes, has_hsts): (Option<&Changes>, bool),
) {
    encoder.begin(out, status.0);
    if server == ServerField::Sent {
        push_kept(encoder, out, changes, (b"server", b"flash"));
    }
    encoder.field(out, b"date", &date, Indexing::Shared);
    if let Some(changes) = changes {
        changes.each_added(has_hsts, |name, value| push_field(encoder, out, name.as_bytes(), value));
    }
}

/// Encodes a field, unless rules leave it out.
pub(super) fn push_kept(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    changes: Option<&Changes>,
    (name, value): (&[u8], &[u8]),
) {
    if changes.is_none_or(|changes| changes.keep(name)) {
        push_field(encoder, out, name, value);
    }
}

/// Encodes a field whose name can have capitals.
fn push_field(encoder: &mut Encoder, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut lower = [0; 64];
    let Some(lower) = lower.get_mut(..name.len()) else {
        return encoder.field(out, &name.to_ascii_lowercase(), value, indexing(b""));
    };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    encoder.field(out, lower, value, indexing(lower));
}

/// Whether other answers have the same field.
fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"set-cookie" | b"www-authenticate" => Indexing::Never,
        b"etag" | b"last-modified" | b"content-range" | b"content-length" | b"location" | b"expires"
        | b"age" | b"link" | b"" => Indexing::Own,
        _ => Indexing::Shared,
    }
}
