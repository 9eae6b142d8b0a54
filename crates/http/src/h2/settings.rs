//! SETTINGS (RFC 9113 section 6.5.2).

use super::frame::FRAME_BYTES;
use super::window::WINDOW_MAX;
use super::{ErrorCode, Violation};

/// SETTINGS_HEADER_TABLE_SIZE.
pub const HEADER_TABLE_SIZE: u16 = 0x1;
/// SETTINGS_ENABLE_PUSH.
pub const ENABLE_PUSH: u16 = 0x2;
/// SETTINGS_MAX_CONCURRENT_STREAMS.
pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
/// SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
/// SETTINGS_MAX_FRAME_SIZE.
pub const MAX_FRAME_SIZE: u16 = 0x5;
/// SETTINGS_MAX_HEADER_LIST_SIZE.
pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 section 2.1).
pub const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// The window of a stream before any SETTINGS.
pub const WINDOW_BYTES: u32 = 65_535;

/// A parameter that matters to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The size of the table that the client decodes with.
    HeaderTable(u32),
    /// The first window of each stream.
    InitialWindow(u32),
    /// Any other.
    Other,
}

/// The settings of a client, as far as a server follows them. Flash sends no frame larger than the smallest maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The first window of each stream.
    pub initial_window: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { initial_window: WINDOW_BYTES }
    }
}

/// Calls `take` with each parameter of a payload, in order.
///
/// # Errors
/// A value is not allowed, or `take` refuses it.
pub fn each_setting(
    payload: &[u8],
    mut take: impl FnMut(Setting) -> Result<(), Violation>,
) -> Result<(), Violation> {
    const BAD: Violation =
        Violation::connection(ErrorCode::PROTOCOL_ERROR, "A setting has a value that is not allowed");
    for parameter in payload.chunks_exact(6) {
        let &[id_high, id_low, a, b, c, d] = parameter else { continue };
        let value = u32::from_be_bytes([a, b, c, d]);
        let setting = match u16::from_be_bytes([id_high, id_low]) {
            HEADER_TABLE_SIZE => Setting::HeaderTable(value),
            INITIAL_WINDOW_SIZE if value > WINDOW_MAX as u32 => {
                return Err(Violation::connection(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "The first window is too large",
                ));
            }
            INITIAL_WINDOW_SIZE => Setting::InitialWindow(value),
            ENABLE_PUSH | NO_RFC7540_PRIORITIES if value > 1 => return Err(BAD),
            MAX_FRAME_SIZE if !(FRAME_BYTES as u32..1 << 24).contains(&value) => return Err(BAD),
            _ => Setting::Other,
        };
        take(setting)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parameters: &[(u16, u32)]) -> Result<Vec<Setting>, ErrorCode> {
        let payload: Vec<u8> = parameters
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let mut settings = Vec::new();
        each_setting(&payload, |setting| {
            settings.push(setting);
            Ok(())
        })
        .map(|()| settings)
        .map_err(|violation| violation.code)
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(
            read(&[(1, 0), (4, 0x7fff_ffff), (0x99, 7), (2, 1), (5, 16_384), (5, 0xff_ffff)]),
            Ok(vec![
                Setting::HeaderTable(0),
                Setting::InitialWindow(0x7fff_ffff),
                Setting::Other,
                Setting::Other,
                Setting::Other,
                Setting::Other
            ])
        );
        assert_eq!(read(&[(4, 0x8000_0000)]), Err(ErrorCode::FLOW_CONTROL_ERROR));
        for bad in [(2, 2), (5, 16_383), (5, 1 << 24), (9, 2)] {
            assert_eq!(read(&[bad]), Err(ErrorCode::PROTOCOL_ERROR), "{bad:?}");
        }
    }
}
