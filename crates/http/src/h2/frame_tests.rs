//! Tests of frames: their forms, their violations and their scopes.

use super::*;

fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_head(&mut out, payload.len(), (kind, flags), stream);
    out.extend_from_slice(payload);
    out
}

/// The code and the stream of the violation.
fn violation(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<(ErrorCode, u32)> {
    next_frame(&bytes(kind, flags, stream, payload))
        .err()
        .map(|(violation, _)| (violation.code, violation.stream))
}

#[test]
fn a_frame_is_whole_or_not_there() {
    let ping = bytes(PING, 0, 0, b"12345678");
    for end in 0..ping.len() {
        assert_eq!(next_frame(&ping[..end]), Ok(None), "{end}");
    }
    assert_eq!(next_frame(&ping), Ok(Some((Frame::Ping { is_ack: false, data: *b"12345678" }, 17))));
    let reserved = bytes(RST_STREAM, 0, 0x8000_0003, &[0, 0, 0, 8]);
    assert_eq!(next_frame(&reserved), Ok(Some((Frame::Reset { stream: 3, code: ErrorCode::CANCEL }, 13))));
}

#[test]
fn data_and_headers_are_freed_of_padding_and_priority() {
    let data = bytes(DATA, PADDED | END_STREAM, 1, b"\x02ab\0\0");
    let expected = Frame::Data { stream: 1, data: b"ab", flow_bytes: 5, ends_stream: true };
    assert_eq!(next_frame(&data), Ok(Some((expected, data.len()))));
    let headers = bytes(HEADERS, PADDED | HAS_PRIORITY | END_HEADERS, 1, b"\x01\x80\0\0\x03\x10block\0");
    let expected = |depends_on_itself| Frame::Headers {
        stream: if depends_on_itself { 3 } else { 1 },
        fragment: b"block",
        ends_stream: false,
        ends_headers: true,
        depends_on_itself,
    };
    assert_eq!(next_frame(&headers), Ok(Some((expected(false), headers.len()))));
    let headers = bytes(HEADERS, PADDED | HAS_PRIORITY | END_HEADERS, 3, b"\x01\x80\0\0\x03\x10block\0");
    assert_eq!(next_frame(&headers), Ok(Some((expected(true), headers.len()))));
}

#[test]
fn violations_have_their_code_and_scope() {
    use ErrorCode as E;
    for (kind, flags, stream, payload, expected) in [
        (DATA, 0, 0, &b""[..], (E::PROTOCOL_ERROR, 0)),
        (DATA, PADDED, 1, b"", (E::FRAME_SIZE_ERROR, 0)),
        (DATA, PADDED, 1, b"\x01", (E::PROTOCOL_ERROR, 0)),
        (HEADERS, 0, 0, b"", (E::PROTOCOL_ERROR, 0)),
        (HEADERS, HAS_PRIORITY, 1, b"1234", (E::FRAME_SIZE_ERROR, 0)),
        (PRIORITY, 0, 1, b"1234", (E::FRAME_SIZE_ERROR, 1)),
        (PRIORITY, 0, 1, b"\0\0\0\x01\0", (E::PROTOCOL_ERROR, 1)),
        (PRIORITY, 0, 0, b"12345", (E::PROTOCOL_ERROR, 0)),
        (RST_STREAM, 0, 1, b"123", (E::FRAME_SIZE_ERROR, 0)),
        (RST_STREAM, 0, 0, b"1234", (E::PROTOCOL_ERROR, 0)),
        (SETTINGS, 0, 1, b"", (E::PROTOCOL_ERROR, 0)),
        (SETTINGS, 0, 0, b"1", (E::FRAME_SIZE_ERROR, 0)),
        (SETTINGS, ACK, 0, b"123456", (E::FRAME_SIZE_ERROR, 0)),
        (PUSH_PROMISE, 0, 1, b"1234", (E::PROTOCOL_ERROR, 0)),
        (PING, 0, 0, b"1234567", (E::FRAME_SIZE_ERROR, 0)),
        (PING, 0, 1, b"12345678", (E::PROTOCOL_ERROR, 0)),
        (GOAWAY, 0, 1, b"12345678", (E::PROTOCOL_ERROR, 0)),
        (GOAWAY, 0, 0, b"1234567", (E::FRAME_SIZE_ERROR, 0)),
        (WINDOW_UPDATE, 0, 0, &[0; 4], (E::PROTOCOL_ERROR, 0)),
        (WINDOW_UPDATE, 0, 5, &[0x80, 0, 0, 0], (E::PROTOCOL_ERROR, 5)),
        (WINDOW_UPDATE, 0, 5, &[0; 3], (E::FRAME_SIZE_ERROR, 0)),
        (PRIORITY_UPDATE, 0, 0, &[0; 4], (E::PROTOCOL_ERROR, 0)),
        (PRIORITY_UPDATE, 0, 0, &[0; 3], (E::FRAME_SIZE_ERROR, 0)),
        (PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1], (E::PROTOCOL_ERROR, 0)),
        (CONTINUATION, 0, 0, b"", (E::PROTOCOL_ERROR, 0)),
    ] {
        assert_eq!(
            violation(kind, flags, stream, payload),
            Some(expected),
            "{kind} {flags} {stream} {payload:?}"
        );
    }
    let too_large = [0, 0x40, 1, PING, 0, 0, 0, 0, 0];
    assert!(next_frame(&too_large).is_err_and(|(bad, _)| bad.code == E::FRAME_SIZE_ERROR && bad.stream == 0));
    assert_eq!(next_frame(&bytes(0x77, 0xff, 9, b"?")), Ok(Some((Frame::Unknown, 10))));
}

#[test]
fn long_header_blocks_take_several_frames() {
    let block: Vec<u8> = (0..40_000_u32).map(|at| at as u8).collect();
    let mut out = b"before".to_vec();
    push_headers(&mut out, 7, true, |out| out.extend_from_slice(&block));
    let (mut rest, mut whole, mut frames) = (&out[6..], Vec::new(), 0);
    while let Ok(Some((frame, taken))) = next_frame(rest) {
        rest = &rest[taken..];
        frames += 1;
        match frame {
            Frame::Headers { stream: 7, fragment, ends_stream: true, ends_headers: false, .. }
                if frames == 1 =>
            {
                whole.extend_from_slice(fragment);
            }
            Frame::Continuation { stream: 7, fragment, ends_headers } => {
                assert_eq!(ends_headers, frames == 3);
                whole.extend_from_slice(fragment);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(rest.is_empty());
    assert_eq!(whole, block);
}
