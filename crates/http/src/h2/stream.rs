//! The receiving half of a stream (RFC 9113 section 5.1): the states of a request as a server sees them. The sending half is
//! the wire's; a stream that it does not know is idle, or closed if its number is not above the last one.

use super::{ErrorCode, Violation};

const CLOSED: &str = "A frame came after the end of its stream";
const LENGTH: &str = "The data differs from the Content-Length";

/// Whether more of a request can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// More data, or trailers, can come: this many bytes if the head says how many.
    Open {
        /// The bytes that the `Content-Length` announces and that have not come; None if there is none.
        left_bytes: Option<u64>,
    },
    /// The client has ended the stream: half-closed (remote).
    Ended,
}

impl Receiving {
    /// Whether the request is complete.
    pub fn has_ended(self) -> bool {
        self == Self::Ended
    }

    /// Takes the length of some data, and whether it is the last.
    ///
    /// # Errors
    /// The stream has ended, or the data is not as long as the head says (RFC 9113 section 8.1.1). The violation is of the
    /// stream with this number.
    pub fn take_data(&mut self, stream: u32, bytes: usize, ends_stream: bool) -> Result<(), Violation> {
        let Self::Open { left_bytes } = self else {
            return Err(Violation::stream(stream, ErrorCode::STREAM_CLOSED, CLOSED));
        };
        if let Some(left) = left_bytes {
            let rest = left.checked_sub(bytes as u64).filter(|rest| !ends_stream || *rest == 0);
            *left = rest.ok_or(Violation::stream(stream, ErrorCode::PROTOCOL_ERROR, LENGTH))?;
        }
        if ends_stream {
            *self = Self::Ended;
        }
        Ok(())
    }

    /// Takes trailers, which must end the stream (RFC 9113 section 8.1).
    ///
    /// # Errors
    /// As for [`Receiving::take_data`].
    pub fn take_trailers(&mut self, stream: u32, ends_stream: bool) -> Result<(), Violation> {
        if !ends_stream && !self.has_ended() {
            let reason = "Trailers do not end their stream";
            return Err(Violation::stream(stream, ErrorCode::PROTOCOL_ERROR, reason));
        }
        self.take_data(stream, 0, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<(), Violation>) -> Option<ErrorCode> {
        result.err().inspect(|violation| assert_eq!(violation.stream, 3)).map(|violation| violation.code)
    }

    #[test]
    fn data_must_be_as_long_as_the_head_says() {
        let open = |bytes| Receiving::Open { left_bytes: Some(bytes) };
        let mut receiving = open(5);
        assert_eq!(code(receiving.take_data(3, 2, false)), None);
        assert_eq!(code(receiving.take_data(3, 4, false)), Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(receiving.take_data(3, 2, true)), Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(receiving.take_data(3, 3, true)), None);
        assert!(receiving.has_ended());
        assert_eq!(code(open(1).take_trailers(3, true)), Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(open(0).take_trailers(3, true)), None);
    }

    #[test]
    fn nothing_follows_the_end() {
        let mut receiving = Receiving::Open { left_bytes: None };
        assert_eq!(code(receiving.take_trailers(3, false)), Some(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(code(receiving.take_data(3, 1 << 20, false)), None);
        assert_eq!(code(receiving.take_trailers(3, true)), None);
        assert_eq!(code(receiving.take_data(3, 0, true)), Some(ErrorCode::STREAM_CLOSED));
        assert_eq!(code(receiving.take_trailers(3, true)), Some(ErrorCode::STREAM_CLOSED));
        assert_eq!(code(receiving.take_trailers(3, false)), Some(ErrorCode::STREAM_CLOSED));
    }
}
