//! Priorities of responses (RFC 9218 sections 4 and 5): the field `Priority`, and the value of PRIORITY_UPDATE.

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether the client can use a part of the response before the rest.
    pub is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// Reads a dictionary of structured fields (RFC 8941 section 3.2). Members that are unknown, malformed or out of range are ignored,
    /// and a value that cannot be read has the defaults (RFC 9218 section 4).
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            // Parameters of a member have no meaning.
            let item = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
            match item {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.is_incremental = true,
                b"i=?0" => priority.is_incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=5", 5, true),
            ("i=?0", 3, false),
            ("i=?1;a=b , u=1;x", 1, true),
            ("u=8", 3, false),
            ("u=-1, i=2", 3, false),
            ("u=2.0, foo=\"x\"", 3, false),
            ("u=1, u=6", 6, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, is_incremental }, "{value}");
        }
    }
}
