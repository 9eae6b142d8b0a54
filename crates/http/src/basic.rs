//! The name and the password of a request (RFC 7617, `Basic`). Called by the engine's gate, and by the load generator.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest name and longest password in bytes.
pub const CREDENTIALS_BYTES_MAX: usize = 256;

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name. It has no colon.
    pub name: Vec<u8>,
    /// The password.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads a value of `Authorization`. None if it has another scheme or another form, or is too long.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let (scheme, rest) = value.split_at_checked(b"Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") || rest.len() > 4 * CREDENTIALS_BYTES_MAX {
            return None;
        }
        let mut name = STANDARD.decode(rest.trim_ascii()).ok()?;
        let colon = name.iter().position(|byte| *byte == b':')?;
        let password = name.split_off(colon + 1);
        name.pop();
        let fits = name.len() <= CREDENTIALS_BYTES_MAX && password.len() <= CREDENTIALS_BYTES_MAX;
        fits.then_some(Self { name, password })
    }
}

/// The value of `Authorization` with these credentials: a name, a colon and a password.
#[must_use]
pub fn value(credentials: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        let Credentials { name, password } = Credentials::read(value.as_bytes())?;
        Some((String::from_utf8(name).expect("a text"), String::from_utf8(password).expect("a text")))
    }

    #[test]
    fn a_name_ends_at_the_first_colon() {
        let both = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        // The examples of RFC 7617, sections 2 and 2.1.
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), both("Aladdin", "open sesame"));
        assert_eq!(read("basic  dGVzdDoxMjPCow== "), both("test", "123£"));
        assert_eq!(read("Basic YTpiOmM="), both("a", "b:c"));
        assert_eq!(read("Basic Og=="), both("", ""));
        for wrong in
            ["", "Basic", "Basic ", "Basic YQ==", "Basic Y", "Bearer YTpi", "Basic YTpi YTpi", "Basic Yüpi"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let long = STANDARD.encode(format!("a:{}", "b".repeat(CREDENTIALS_BYTES_MAX + 1)));
        assert_eq!(read(&format!("Basic {long}")), None);
    }
}
