//! The fields that a server gives to a request to which it agrees: from its answer into the request that another server gets.
//!
//! Called by the engine. It must not decide which fields these are.

use crate::forward::each_field_variable;
use crate::hop::Field;

/// Whether a server could take two names for the same field: CGI and its successors make `_` of the characters between words.
#[must_use]
pub fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'_' };
    one.len() == other.len() && one.iter().map(plain).eq(other.iter().map(plain))
}

/// Takes the lines of an answer ([`ResponseHead::fields`](crate::upstream_response::ResponseHead::fields)) that have one of these names
/// into those that a request gets, in place of what earlier answers had under these names.
pub fn grant(granted: &mut Vec<u8>, lines: &[u8], names: &[String]) {
    let is_named = |line: &[u8]| {
        let (name, _) = field(line);
        names.iter().any(|named| named.as_bytes().eq_ignore_ascii_case(name))
    };
    let kept = each_line(granted).filter(|line| !is_named(line));
    let taken = each_line(lines).filter(|line| is_named(line));
    *granted = kept.chain(taken).collect::<Vec<_>>().concat();
}

/// Calls `param` with the name and value of the CGI meta-variable of each such field (RFC 3875, section 4.1.18).
pub fn each_granted_variable(granted: &[u8], param: impl FnMut(&[u8], &[u8])) {
    each_field_variable(&each_line(granted).map(field).collect::<Vec<_>>(), param);
}

fn each_line(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|byte| *byte == b'\n')
}

/// The name and the value in a line.
fn field(line: &[u8]) -> Field<'_> {
    let colon = memchr::memchr(b':', line).unwrap_or(line.len());
    (&line[..colon], line.get(colon + 1..).unwrap_or_default().trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"X-User: ann\r\nX-Other: 1\r\nx-groups: a\r\nX-Groups: b\r\nX-Empty: \r\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_latest_answer_that_names_a_field_has_it() {
        let mut granted = Vec::new();
        grant(&mut granted, LINES, &names(&["X-None", "X-Use", "X-User2"]));
        assert_eq!(granted, b"");
        grant(&mut granted, LINES, &names(&["x-user", "X-Groups"]));
        assert_eq!(granted, b"X-User: ann\r\nx-groups: a\r\nX-Groups: b\r\n");
        grant(&mut granted, b"X-Groups: c\r\nX-User: bob\r\n", &names(&["X-GROUPS"]));
        assert_eq!(granted, b"X-User: ann\r\nX-Groups: c\r\n");
        grant(&mut granted, b"", &names(&["X-User"]));
        assert_eq!(granted, b"X-Groups: c\r\n");
    }

    #[test]
    fn variables_have_all_values_of_a_name() {
        let mut variables = Vec::new();
        each_granted_variable(LINES, |name, value| {
            variables.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
        });
        assert_eq!(variables, ["HTTP_X_USER=ann", "HTTP_X_OTHER=1", "HTTP_X_GROUPS=a, b", "HTTP_X_EMPTY="]);
    }

    #[test]
    fn names_that_become_one_variable_are_alike() {
        for other in ["X-User", "x_user", "X.user", "x-USER"] {
            assert!(is_alike(b"X-User", other.as_bytes()), "{other}");
        }
        for other in ["X-User2", "XUser", "X-Use", ""] {
            assert!(!is_alike(b"X-User", other.as_bytes()), "{other}");
        }
    }
}
