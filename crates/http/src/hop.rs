//! Fields that are meant for one connection only and must not be passed on (RFC 9110 section 7.6.1).
//!
//! Called by `forward` and by the answers of servers. It must not know any other reason to leave a field out.

use std::cmp::Ordering;

/// The name and the value of a field.
pub type Field<'b> = (&'b [u8], &'b [u8]);

/// The fields that RFC 9110 section 7.6.1 names, and `Trailer`, because Flash drops trailer fields.
const HOP_BY_HOP: &[&[u8]] =
    &[b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"];

/// Whether a field is meant for one connection only, whatever `Connection` says.
pub(crate) fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The elements of a list (RFC 9110 section 5.6.1); some can be empty.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// The names of the fields of one head, each with whether a `Connection` field names it.
///
/// The names are sorted: a head can have 100 fields and name 16,000, and comparing each with each would let a
/// client block the event loop.
pub(crate) struct Named<'b>(Vec<(&'b [u8], bool)>);

impl<'b> Named<'b> {
    /// Reads the `Connection` fields of a head.
    pub(crate) fn new(fields: &[Field<'b>]) -> Self {
        let is_connection = |field: &&Field<'b>| field.0.eq_ignore_ascii_case(b"connection");
        if !fields.iter().any(|field| is_connection(&field)) {
            return Self(Vec::new());
        }
        let mut names: Vec<(&[u8], bool)> = fields.iter().map(|(name, _)| (*name, false)).collect();
        names.sort_unstable_by(|one, other| order(one.0, other.0));
        names.dedup_by(|one, other| one.0.eq_ignore_ascii_case(other.0));
        let mut named = Self(names);
        for option in fields.iter().filter(is_connection).flat_map(|(_, value)| elements(value)) {
            if let Some(at) = named.find(option) {
                named.0[at].1 = true;
            }
        }
        named
    }

    /// Whether `Connection` names this field of the head.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.find(name).is_some_and(|at| self.0[at].1)
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.0.binary_search_by(|(known, _)| order(known, name)).ok()
    }
}

/// Any total order of names that ignores case.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let lower = |name: &[u8], at: usize| name[at].to_ascii_lowercase();
    one.len().cmp(&other.len()).then_with(|| {
        (0..one.len())
            .map(|at| lower(one, at).cmp(&lower(other, at)))
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_names_fields() {
        let fields: [Field<'_>; 6] = [
            (b"X-B", b"1"),
            (b"x-a", b"2"),
            (b"Connection", b"close, X-A ,, x-none"),
            (b"CONNECTION", b"x-b"),
            (b"X-C", b"x-d"),
            (b"x-b", b"3"),
        ];
        let named = Named::new(&fields);
        for (name, expected) in [
            ("x-a", true),
            ("X-a", true),
            ("x-b", true),
            ("x-c", false),
            ("y-a", false),
            ("x-none", false),
            ("", false),
        ] {
            assert_eq!(named.contains(name.as_bytes()), expected, "{name}");
        }
        assert!(!Named::new(&fields[..2]).contains(b"x-a"));
    }

    #[test]
    fn hop_by_hop() {
        for (name, expected) in
            [("TE", true), ("Transfer-Encoding", true), ("Content-Length", false), ("Te2", false)]
        {
            assert_eq!(is_hop_by_hop(name.as_bytes()), expected, "{name}");
        }
    }
}
