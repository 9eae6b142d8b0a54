//! Error codes (RFC 9113 section 7), and violations of the protocol with their scope.

use super::hpack::BadBlock;

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(
    /// Its number.
    pub u32,
);

#[allow(missing_docs)]
impl ErrorCode {
    pub const NO_ERROR: Self = Self(0x0);
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    pub const INTERNAL_ERROR: Self = Self(0x2);
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    pub const STREAM_CLOSED: Self = Self(0x5);
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    pub const REFUSED_STREAM: Self = Self(0x7);
    pub const CANCEL: Self = Self(0x8);
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

/// A violation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The stream that ends; 0 if the connection ends.
    pub stream: u32,
    /// The code that the peer gets.
    pub code: ErrorCode,
    /// The reason, for the peer and for reports.
    pub reason: &'static str,
}

impl Violation {
    /// A violation that ends the connection.
    pub const fn connection(code: ErrorCode, reason: &'static str) -> Self {
        Self { stream: 0, code, reason }
    }

    /// A violation that ends a stream.
    pub const fn stream(stream: u32, code: ErrorCode, reason: &'static str) -> Self {
        Self { stream, code, reason }
    }
}

impl From<BadBlock> for Violation {
    fn from(bad: BadBlock) -> Self {
        Self::connection(ErrorCode::COMPRESSION_ERROR, bad.0)
    }
}
