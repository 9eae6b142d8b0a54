//! Responses of FastCGI applications: the engine reads the same data, errors and end as a simple reader of records
//! does, however the bytes arrive.

use flash_engine::fastcgi::{ResponseRead, read_response};
use flash_engine::limits::APPLICATION_ERRORS_BYTES_MAX;

use crate::text::cuts;

/// Checks `input`, the bytes that an application sends.
pub fn fastcgi_response(input: &[u8]) {
    let whole = read(input, [input.len()]);
    assert_eq!(whole.clone().map_err(|_| Bad), expected(input));
    assert_eq!(read(input, 1..=input.len()), whole, "in single bytes");
    assert_eq!(read(input, cuts(input)), whole, "in pieces");
}

/// The response that arrives in pieces cut at `ends`.
fn read(input: &[u8], ends: impl IntoIterator<Item = usize>) -> Result<ResponseRead, &'static str> {
    let mut start = 0;
    read_response(ends.into_iter().map(|end| &input[std::mem::replace(&mut start, end)..end]))
}

/// A record that an application must not send.
#[derive(Debug, PartialEq, Eq)]
struct Bad;

/// A plain reader: one record after another, the last of which can be cut short. It knows the numbers of the
/// specification's section 8.
fn expected(input: &[u8]) -> Result<ResponseRead, Bad> {
    let mut read = ResponseRead::default();
    let (mut rest, mut has_data_ended) = (input, false);
    while let [version, kind, id_high, id_low, high, low, padding, _, after @ ..] = rest {
        let content_bytes = usize::from(*high) * 256 + usize::from(*low);
        let content = &after[..content_bytes.min(after.len())];
        match (version, kind, (id_high, id_low)) {
            (1, 3, (0, 1)) if content_bytes >= 8 => {
                let last = content_bytes + usize::from(*padding);
                if after.len() > last {
                    return Err(Bad);
                }
                if after.len() == last {
                    let app_status = u32::from_be_bytes([content[0], content[1], content[2], content[3]]);
                    read.end = Some(if content[4] == 0 { Ok(app_status) } else { Err(content[4]) });
                }
            }
            (1, 6, (0, 1)) if content_bytes == 0 => has_data_ended = true,
            (1, 6, (0, 1)) if !has_data_ended => read.data.extend_from_slice(content),
            (1, 7, (0, 1)) => read.errors.extend_from_slice(content),
            (1, 10 | 11, (0, 0)) => {}
            _ => return Err(Bad),
        }
        rest = after.get(content_bytes + usize::from(*padding)..).unwrap_or_default();
    }
    read.errors.truncate(APPLICATION_ERRORS_BYTES_MAX);
    Ok(read)
}
