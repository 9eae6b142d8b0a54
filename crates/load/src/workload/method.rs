//! Methods of requests (RFC 9110 section 9): which of them a request can have. Pure.
//!
//! Options and lists check names with it, the generator asks for their properties.

/// The longest name of a method.
const BYTES_MAX: usize = 32;

/// Whether these bytes are a token (RFC 9110 section 5.6.2), as names of methods and fields are.
pub(crate) fn is_token(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_part)
}

/// Checks the name of a method.
pub(crate) fn check(name: &str) -> Result<(), String> {
    match name {
        "CONNECT" => Err("CONNECT asks for a tunnel, which no answer ends".to_owned()),
        _ if name.len() <= BYTES_MAX && is_token(name.as_bytes()) => Ok(()),
        _ => Err(format!("'{name}' is no method: write a token such as POST")),
    }
}

/// Whether a request of this method may be sent again if it is not known whether the server has handled it (RFC 9110
/// section 9.2.2).
pub(crate) fn is_idempotent(name: &str) -> bool {
    matches!(name, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "QUERY")
}

/// Whether a request of this method has content, if only of 0 bytes.
pub(crate) fn has_content(name: &str) -> bool {
    matches!(name, "POST" | "PUT" | "PATCH" | "QUERY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_tokens_and_no_tunnels() {
        for name in ["GET", "post", "M-SEARCH", "X!#$%&'*+-.^_`|~9"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", "CONNECT", "GET ", "A/B", "A\r\nB", "É", &"A".repeat(33)] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
