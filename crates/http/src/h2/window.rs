//! Flow-control windows (RFC 9113 sections 5.2 and 6.9).

use super::{ErrorCode, Violation};

/// The largest window.
pub const WINDOW_MAX: i64 = 0x7fff_ffff;

/// A window: how many bytes of DATA may still be sent. It can be negative after the peer has made its first window smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i64);

impl Window {
    /// A window of this many bytes.
    pub fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// How many bytes may be sent now.
    #[inline]
    pub fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Notes that this many bytes were sent or received.
    ///
    /// # Errors
    /// There is no room for them. The window stays as it is.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<(), Violation> {
        if bytes > self.available() {
            return Err(Violation::connection(ErrorCode::FLOW_CONTROL_ERROR, "The data exceeds the window"));
        }
        self.0 -= bytes as i64;
        Ok(())
    }

    /// Grows, or shrinks if `bytes` is negative.
    ///
    /// # Errors
    /// The window would be too large. It stays as it is.
    pub fn grow(&mut self, bytes: i64) -> Result<(), Violation> {
        if self.0 + bytes > WINDOW_MAX {
            return Err(Violation::connection(ErrorCode::FLOW_CONTROL_ERROR, "A window is too large"));
        }
        self.0 += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_bounds() {
        let mut window = Window::new(10);
        assert!(window.take(11).is_err());
        assert!(window.take(10).is_ok());
        assert_eq!(window.available(), 0);
        assert!(window.grow(-5).is_ok());
        assert_eq!(window.available(), 0);
        assert!(window.grow(6).is_ok());
        assert_eq!(window.available(), 1);
        assert!(window.grow(WINDOW_MAX).is_err());
        assert!(window.grow(WINDOW_MAX - 1).is_ok());
        assert_eq!(window.available(), WINDOW_MAX as usize);
    }
}
