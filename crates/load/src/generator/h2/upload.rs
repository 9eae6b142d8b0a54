//! Bodies of requests on their way to a server of HTTP/2, as far as its windows allow (RFC 9113 section 5.2). Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use flash_http::h2::{Window, frame};

/// The windows of a connection and of a stream before the server changes them (RFC 9113 section 6.9.2).
const FIRST_WINDOW_BYTES: u32 = 65_535;
/// The largest frame that every server takes (RFC 9113 section 6.5.2).
const FRAME_BYTES: usize = 16 * 1024;
/// Bytes that are written before the socket is asked whether it takes more.
const WRITE_BYTES: usize = 64 * 1024;

/// The server breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The bodies that a connection sends.
#[derive(Debug)]
pub(crate) struct Uploads {
    window: Window,
    /// The window of a new stream.
    stream_window: u32,
    /// They take turns, frame by frame.
    bodies: VecDeque<Upload>,
}

#[derive(Debug)]
struct Upload {
    stream: u32,
    body: Arc<[u8]>,
    sent_bytes: usize,
    window: Window,
}

impl Uploads {
    pub(crate) fn new() -> Self {
        let window = Window::new(FIRST_WINDOW_BYTES);
        Self { window, stream_window: FIRST_WINDOW_BYTES, bodies: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Adds the body of a stream, which is not empty.
    pub(crate) fn begin(&mut self, stream: u32, body: Arc<[u8]>) {
        let window = Window::new(self.stream_window);
        self.bodies.push_back(Upload { stream, body, sent_bytes: 0, window });
    }

    /// Forgets the body of a stream that has ended. Returns whether it was not sent completely.
    pub(crate) fn end(&mut self, stream: u32) -> bool {
        let before = self.bodies.len();
        self.bodies.retain(|upload| upload.stream != stream);
        self.bodies.len() < before
    }

    /// Takes a WINDOW_UPDATE.
    ///
    /// Errors: the window would be too large.
    pub(crate) fn grow(&mut self, stream: u32, increment: u32) -> Result<(), Broken> {
        let window = match stream {
            0 => Some(&mut self.window),
            _ => {
                self.bodies.iter_mut().find(|upload| upload.stream == stream).map(|upload| &mut upload.window)
            }
        };
        window.map_or(Ok(()), |window| window.grow(i64::from(increment)).map_err(|_| Broken))
    }

    /// Follows a `SETTINGS_INITIAL_WINDOW_SIZE`, which is for all streams (RFC 9113 section 6.9.2).
    ///
    /// Errors: a window would be too large.
    pub(crate) fn resize(&mut self, bytes: u32) -> Result<(), Broken> {
        let change = i64::from(bytes) - i64::from(std::mem::replace(&mut self.stream_window, bytes));
        self.bodies.iter_mut().try_for_each(|upload| upload.window.grow(change).map_err(|_| Broken))
    }

    /// Appends as many frames as the windows allow, up to a bound.
    pub(crate) fn write(&mut self, output: &mut Vec<u8>) {
        let mut stuck = 0;
        while output.len() < WRITE_BYTES && stuck < self.bodies.len() {
            let Some(mut upload) = self.bodies.pop_front() else { return };
            let rest = &upload.body[upload.sent_bytes..];
            let piece =
                rest.len().min(FRAME_BYTES).min(self.window.available()).min(upload.window.available());
            // Neither can fail: the piece fits both.
            if piece > 0 && self.window.take(piece).is_ok() && upload.window.take(piece).is_ok() {
                let is_last = piece == rest.len();
                frame::push_data(output, upload.stream, &rest[..piece], is_last);
                upload.sent_bytes += piece;
                stuck = 0;
                if is_last {
                    continue;
                }
            } else {
                stuck += 1;
            }
            self.bodies.push_back(upload);
        }
    }
}

#[cfg(test)]
mod tests {
    use flash_http::h2::{Frame, next_frame};

    use super::*;

    /// The frames that are written: streams, lengths, ends.
    fn written(uploads: &mut Uploads) -> Vec<(u32, usize, bool)> {
        let (mut output, mut frames, mut at) = (Vec::new(), Vec::new(), 0);
        uploads.write(&mut output);
        while let Some((frame, length)) = next_frame(&output[at..]).unwrap() {
            let Frame::Data { stream, data, ends_stream, .. } = frame else { panic!("{frame:?}") };
            frames.push((stream, data.len(), ends_stream));
            at += length;
        }
        frames
    }

    fn body(bytes: usize) -> Arc<[u8]> {
        vec![b'x'; bytes].into()
    }

    #[test]
    fn bodies_take_turns_and_end() {
        let mut uploads = Uploads::new();
        uploads.begin(1, body(20_000));
        uploads.begin(3, body(5));
        assert_eq!(written(&mut uploads), [(1, 16_384, false), (3, 5, true), (1, 3616, true)]);
        assert!(uploads.is_empty() && written(&mut uploads).is_empty());
    }

    #[test]
    fn windows_stop_bodies_until_they_grow() {
        let mut uploads = Uploads::new();
        uploads.resize(10).unwrap();
        uploads.begin(1, body(30));
        assert_eq!(written(&mut uploads), [(1, 10, false)]);
        assert_eq!(written(&mut uploads), []);
        uploads.grow(1, 5).unwrap();
        uploads.grow(99, 5).unwrap();
        assert_eq!(written(&mut uploads), [(1, 5, false)]);
        // The window becomes negative, and has to grow beyond that.
        uploads.resize(0).unwrap();
        uploads.grow(1, 12).unwrap();
        assert_eq!(written(&mut uploads), [(1, 2, false)]);
        uploads.resize(1000).unwrap();
        assert_eq!(written(&mut uploads), [(1, 13, true)]);
        assert!(uploads.grow(0, 0x7fff_ffff).is_err());
        // The connection's own window bounds all.
        let mut uploads = Uploads::new();
        uploads.resize(1 << 20).unwrap();
        uploads.begin(1, body(100_000));
        let sent: usize = (0..3).flat_map(|_| written(&mut uploads)).map(|(_, bytes, _)| bytes).sum();
        assert_eq!(sent, 65_535);
        assert!(uploads.end(1) && !uploads.end(1) && uploads.is_empty());
    }
}
