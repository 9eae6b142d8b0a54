//! Frames of HTTP/2: `flash_http::h2::next_frame` agrees with RFC 9113 section 4.1, however the bytes arrive.

use flash_http::h2::frame::{push_data, push_ping, push_window_update};
use flash_http::h2::settings::each_setting;
use flash_http::h2::{ErrorCode, FRAME_HEAD_BYTES, Frame, next_frame};

/// The largest payload that Flash accepts.
const PAYLOAD_BYTES_MAX: usize = 16_384;

/// Checks `input`, frames of a client behind its preface.
pub fn frames(input: &[u8]) {
    let mut rest = input;
    loop {
        let whole = whole_bytes(rest);
        match next_frame(rest) {
            Ok(None) => return assert!(whole.is_none(), "a whole frame was not read"),
            Ok(Some((frame, taken))) => {
                assert_eq!(Some(taken), whole, "{frame:?}");
                check_frame(&frame, &rest[..taken]);
                // The bytes behind a frame do not matter, and no part of it is enough.
                assert_eq!(next_frame(&rest[..taken]), Ok(Some((frame, taken))));
                assert_eq!(next_frame(&rest[..taken - 1]), Ok(None));
                rest = &rest[taken..];
            }
            Err((violation, taken)) if violation.stream != 0 => {
                assert_eq!(Some(taken), whole, "{violation:?}");
                assert_eq!(violation.stream, stream(rest));
                rest = &rest[taken..];
            }
            Err((violation, _)) => {
                let is_too_large = length(rest).is_some_and(|length| length > PAYLOAD_BYTES_MAX);
                assert!(is_too_large || whole.is_some(), "{violation:?} before the frame is there");
                assert!(!is_too_large || violation.code == ErrorCode::FRAME_SIZE_ERROR);
                return;
            }
        }
    }
}

fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..FRAME_HEAD_BYTES)?;
    Some(usize::from(head[0]) * 65_536 + usize::from(head[1]) * 256 + usize::from(head[2]))
}

/// The length of the frame at the front with its head, if it is complete.
fn whole_bytes(bytes: &[u8]) -> Option<usize> {
    let whole = length(bytes)? + FRAME_HEAD_BYTES;
    (bytes.len() >= whole).then_some(whole)
}

fn stream(bytes: &[u8]) -> u32 {
    bytes[5..9].iter().fold(0, |number, byte| number * 256 + u64::from(*byte)) as u32 & 0x7fff_ffff
}

fn check_frame(frame: &Frame<'_>, bytes: &[u8]) {
    let payload = &bytes[FRAME_HEAD_BYTES..];
    let mut again = Vec::new();
    match *frame {
        Frame::Data { stream: number, data, flow_bytes, ends_stream } => {
            assert_eq!((bytes[3], number, flow_bytes), (0, stream(bytes), payload.len()));
            assert!(number > 0);
            if bytes[4] & 0x8 != 0 {
                let padding = usize::from(payload[0]);
                assert_eq!(data, &payload[1..payload.len() - padding]);
            } else {
                push_data(&mut again, number, data, ends_stream);
                assert_eq!(again[9..], bytes[9..]);
            }
        }
        Frame::Headers { stream: number, fragment, .. } => {
            let before = usize::from(bytes[4] & 0x8 != 0) + if bytes[4] & 0x20 != 0 { 5 } else { 0 };
            assert!(number > 0 && payload[before..].starts_with(fragment));
        }
        Frame::Continuation { stream: number, fragment, .. } => assert!(number > 0 && fragment == payload),
        Frame::Settings { payload: parameters } => {
            let mut settings = 0;
            let read = each_setting(parameters, |_| {
                settings += 1;
                Ok(())
            });
            assert!(read.is_err() || settings == payload.len() / 6);
        }
        Frame::Ping { is_ack, data } => {
            push_ping(&mut again, is_ack, data);
            assert_eq!(again[9..], bytes[9..]);
        }
        Frame::WindowUpdate { stream: number, increment } => {
            assert!(increment > 0);
            push_window_update(&mut again, number, increment);
            // The highest bit is reserved.
            assert_eq!(again[10..], bytes[10..]);
        }
        Frame::PriorityUpdate { prioritized, value } => {
            assert!(prioritized > 0 && value == &payload[4..]);
        }
        Frame::Priority { stream: number } | Frame::Reset { stream: number, .. } => {
            assert!(number > 0 && number == stream(bytes));
        }
        Frame::SettingsAck | Frame::GoAway => assert_eq!(stream(bytes), 0),
        Frame::Unknown => assert!(bytes[3] > 9),
    }
}
