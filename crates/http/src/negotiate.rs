//! Content negotiation (RFC 9110 section 12.5): chooses a content coding, and between HTML and JSON.
//!
//! Called by the engine for files, errors and listings. It must not know which variants exist; the caller
//! passes that.

/// A content coding of a compressed form of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Coding {
    /// Brotli.
    Br,
    /// Zstandard.
    Zstd,
    /// Gzip.
    Gzip,
}

impl Coding {
    /// All codings, the server's favourite first: the one that compresses text best if it has time.
    pub const ALL: [Self; 3] = [Self::Br, Self::Zstd, Self::Gzip];

    /// Its place in [`Coding::ALL`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// The name in `Content-Encoding`.
    pub fn token(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The extension of a precompressed file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Br => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// The weight of a coding in thousandths, from 0 to 1000; 0 means "not acceptable".
type Weight = u16;
const WEIGHT_MAX: Weight = 1000;
/// The weight of `identity` if the field does not mention it: acceptable (RFC 9110 section 12.5.3), but less
/// than anything that the client asked for.
const WEIGHT_LEAST: Weight = 1;

/// The codings that a client accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acceptable {
    /// In the order of [`Coding::ALL`].
    codings: [Weight; 3],
    identity: Weight,
}

/// The variant to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The plain file.
    Identity,
    /// The variant in this coding.
    Coded(Coding),
    /// The client accepts none of the variants and explicitly rules out the plain file. In that case RFC 9110
    /// section 12.5.3 no longer recommends sending it, so the answer is 406.
    NotAcceptable,
}

/// Parses `Accept-Encoding`. Without the field any coding would be allowed (RFC 9110 section 12.5.3), but
/// clients that do not send it rarely decode, so only the plain file is accepted. Malformed elements are
/// skipped.
pub fn accept_encoding(field: Option<&[u8]>) -> Acceptable {
    let mut codings = [None; 3];
    let mut identity = None;
    let mut any = None;
    for (name, weight) in field.into_iter().flat_map(elements) {
        let slot = match name {
            b"*" => &mut any,
            _ if name.eq_ignore_ascii_case(b"br") => &mut codings[0],
            _ if name.eq_ignore_ascii_case(b"zstd") => &mut codings[1],
            // Section 8.4.1.3: `x-gzip` is `gzip`.
            _ if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
                &mut codings[2]
            }
            _ if name.eq_ignore_ascii_case(b"identity") => &mut identity,
            _ => continue,
        };
        *slot = Some(weight);
    }
    Acceptable {
        codings: codings.map(|weight| weight.or(any).unwrap_or(0)),
        identity: identity.or(any).unwrap_or(WEIGHT_LEAST),
    }
}

impl Acceptable {
    /// Chooses among the plain file and the variants for which `available` returns true: the highest weight
    /// wins; among equals a coded variant, in the order of [`Coding::ALL`].
    pub fn choose(&self, available: impl Fn(Coding) -> bool) -> Choice {
        let mut choice = Choice::NotAcceptable;
        let mut best = 0;
        for (coding, &weight) in Coding::ALL.into_iter().zip(&self.codings) {
            // The weight is checked first, because `available` can cost a look-up.
            if weight > best && available(coding) {
                choice = Choice::Coded(coding);
                best = weight;
            }
        }
        if self.identity > best { Choice::Identity } else { choice }
    }

    /// Whether `coding` is acceptable.
    pub fn accepts(&self, coding: Coding) -> bool {
        Coding::ALL.into_iter().zip(self.codings).any(|(other, weight)| other == coding && weight > 0)
    }
}

/// Whether `Accept` prefers `application/json` to `text/html`: by a higher weight or, with equal weights, by
/// naming it more precisely (`application/json, */*`). `*/*` alone, or no field, does not.
pub fn prefers_json(accept: Option<&[u8]>) -> bool {
    // How precisely a type was named, and its weight. The most precise range decides (RFC 9110 section
    // 12.5.1).
    let mut json = (0, 0);
    let mut html = (0, 0);
    for (name, weight) in accept.into_iter().flat_map(elements) {
        let is = |range: &[u8]| name.eq_ignore_ascii_case(range);
        json = json.max(match () {
            () if is(b"application/json") => (3, weight),
            () if is(b"application/*") => (2, weight),
            () if is(b"*/*") => (1, weight),
            () => (0, 0),
        });
        html = html.max(match () {
            () if is(b"text/html") => (3, weight),
            () if is(b"text/*") => (2, weight),
            () if is(b"*/*") => (1, weight),
            () => (0, 0),
        });
    }
    let (json_precision, json_weight) = json;
    let (html_precision, html_weight) = html;
    json_weight > 0 && (json_weight, json_precision) > (html_weight, html_precision)
}

/// The elements of a list with weights: name and weight. Parameters other than `q` are ignored, so
/// `text/html;level=1` counts as `text/html`.
fn elements(field: &[u8]) -> impl Iterator<Item = (&[u8], Weight)> {
    field.split(|&byte| byte == b',').filter_map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let mut weight = WEIGHT_MAX;
        for parameter in parts {
            if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                weight = parse_weight(value)?;
            }
        }
        Some((name, weight))
    })
}

/// Parses a `qvalue` of RFC 9110 section 12.4.2: 0 to 1 with at most three decimals.
fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole] => (whole, [].as_slice()),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => WEIGHT_MAX,
        _ => return None,
    };
    let mut unit = 100;
    for &digit in decimals {
        if !digit.is_ascii_digit() {
            return None;
        }
        weight += Weight::from(digit - b'0') * unit;
        unit /= 10;
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choose(field: &str, available: &[Coding]) -> Choice {
        accept_encoding(Some(field.as_bytes())).choose(|coding| available.contains(&coding))
    }

    #[test]
    fn without_the_field_the_plain_file_is_sent() {
        assert_eq!(accept_encoding(None).choose(|_| true), Choice::Identity);
        assert_eq!(choose("", &Coding::ALL), Choice::Identity);
    }

    #[test]
    fn choices() {
        use Choice::{Coded, Identity, NotAcceptable};
        use Coding::{Br, Gzip, Zstd};
        for (field, available, expected) in [
            ("gzip, deflate, br, zstd", &Coding::ALL[..], Coded(Br)),
            ("gzip, deflate, br, zstd", &[Gzip, Zstd], Coded(Zstd)),
            ("gzip, deflate, br, zstd", &[], Identity),
            ("deflate", &Coding::ALL, Identity),
            ("GZIP", &Coding::ALL, Coded(Gzip)),
            ("x-gzip", &Coding::ALL, Coded(Gzip)),
            ("br;q=0.5, gzip;q=0.9", &Coding::ALL, Coded(Gzip)),
            ("br;q=0.5, gzip;q=0.9", &[Br], Coded(Br)),
            ("br ; Q=0.500 ,\tgzip;q=0.501", &Coding::ALL, Coded(Gzip)),
            ("br;q=0, *", &Coding::ALL, Coded(Zstd)),
            ("*", &[], Identity),
            ("*;q=0.1, identity;q=0.5", &Coding::ALL, Identity),
            ("gzip;q=0.5, identity;q=0.5", &[Gzip], Coded(Gzip)),
            ("gzip;q=0.001", &[Gzip], Coded(Gzip)),
            ("gzip;q=0", &[Gzip], Identity),
            ("gzip;q=0.000", &[Gzip], Identity),
            ("identity;q=0", &Coding::ALL, NotAcceptable),
            ("*;q=0", &Coding::ALL, NotAcceptable),
            ("*;q=0, gzip", &[Gzip], Coded(Gzip)),
            ("*;q=0, gzip", &[Br], NotAcceptable),
            ("identity;q=0, gzip", &[], NotAcceptable),
            ("*;q=0, identity", &Coding::ALL, Identity),
            // Elements with malformed weights are skipped.
            ("br;q=2, gzip;q=0.1", &Coding::ALL, Coded(Gzip)),
            ("br;q=, zstd;q=1.001, gzip;q=.5", &Coding::ALL, Identity),
            ("br;q=0.1234", &Coding::ALL, Identity),
            ("br;q=-1", &Coding::ALL, Identity),
            (",, br ,", &Coding::ALL, Coded(Br)),
        ] {
            assert_eq!(choose(field, available), expected, "{field:?} with {available:?}");
        }
    }

    #[test]
    fn unacceptable_variants_are_not_looked_up() {
        accept_encoding(Some(b"gzip")).choose(|coding| {
            assert_eq!(coding, Coding::Gzip);
            true
        });
        assert!(accept_encoding(Some(b"gzip")).accepts(Coding::Gzip));
        assert!(!accept_encoding(Some(b"gzip")).accepts(Coding::Br));
    }

    #[test]
    fn json_or_not() {
        for yes in [
            "application/json",
            "application/json, */*",
            "application/json, text/plain, */*",
            "application/*",
            "text/html;q=0.9, application/json",
            "Application/JSON",
            "text/html;q=0, */*",
            "application/json;charset=utf-8, text/*;q=0.5",
        ] {
            assert!(prefers_json(Some(yes.as_bytes())), "{yes}");
        }
        for no in [
            "",
            "*/*",
            "text/html",
            "text/html, application/json",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/json;q=0.5, text/html",
            "application/json;q=0",
            "application/json;q=0, */*",
            "application/json;q=x",
            "application/*, text/html",
            "image/png",
            "application/jsonx",
        ] {
            assert!(!prefers_json(Some(no.as_bytes())), "{no}");
        }
        assert!(!prefers_json(None));
    }

    #[test]
    fn names() {
        assert_eq!(Coding::ALL.map(Coding::place), [0, 1, 2]);
        assert_eq!(Coding::ALL.map(Coding::token), ["br", "zstd", "gzip"]);
        assert_eq!(Coding::ALL.map(Coding::extension), [".br", ".zst", ".gz"]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let acceptable = accept_encoding(Some(&bytes));
            if let Choice::Coded(coding) = acceptable.choose(|coding| coding != Coding::Br) {
                prop_assert!(coding != Coding::Br && acceptable.accepts(coding));
            }
            let _ = prefers_json(Some(&bytes));
        }

        #[test]
        fn every_weight_is_read(thousandths in 0u16..=1000) {
            let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            prop_assert_eq!(parse_weight(text.as_bytes()), Some(thousandths));
        }
    }
}
