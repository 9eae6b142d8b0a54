//! Parses one value of an option: an address, a number, a name, a path.
//!
//! Every source (flag, environment, file) passes its values as text, so each rule about a value is here once. Called by
//! `config::options` for options and by `config::file` for hosts and content types. It must not touch the system: `config::resolve`
//! checks whether a folder exists.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;

use flash_units as units;

use super::choices::Choice;
use super::suggest;

/// The word for a value that Flash chooses.
const AUTO: &str = "auto";

/// The name that means no list, like the empty name.
const NO_LIST: &str = "off";

/// The kind of an option's value, with inclusive bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses with their ports, any number.
    Addresses,
    /// Names of files, any number.
    FileNames,
    /// Networks of clients, any number.
    Networks,
    /// A path, relative to the folder of its source.
    Path,
    /// Yes or no.
    Switch,
    /// Yes, no, or `auto`.
    AutoSwitch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A user, with a group or without.
    User,
    /// A whole number.
    Count {
        /// The smallest number allowed.
        least: u64,
        /// The largest number allowed.
        most: u64,
    },
    /// A duration.
    Duration {
        /// The shortest duration allowed, in milliseconds.
        least_ms: u64,
        /// The longest duration allowed, in milliseconds.
        most_ms: u64,
    },
    /// A size, or a size per second.
    Size {
        /// The smallest size allowed, in bytes.
        least_bytes: u64,
        /// The largest size allowed, in bytes.
        most_bytes: u64,
    },
    /// A rate in bits per second.
    Rate {
        /// The lowest rate allowed, in bits per second.
        least_bits_per_s: u64,
        /// The highest rate allowed, in bits per second.
        most_bits_per_s: u64,
    },
    /// A size of memory or of files: a small number needs a unit.
    MemorySize {
        /// The smallest size allowed, in bytes.
        least_bytes: u64,
        /// The largest size allowed, in bytes.
        most_bytes: u64,
    },
    /// Sizes, any number.
    Sizes {
        /// The smallest size allowed, in bytes.
        least_bytes: u64,
        /// The largest size allowed, in bytes.
        most_bytes: u64,
    },
    /// A size of memory, or `auto`.
    AutoSize {
        /// The smallest size allowed, in bytes.
        least_bytes: u64,
        /// The largest size allowed, in bytes.
        most_bytes: u64,
    },
}

impl Kind {
    /// Whether the option takes any number of values: a repeatable flag, a list in the file, commas in the
    /// environment.
    #[must_use]
    pub fn is_list(self) -> bool {
        matches!(self, Kind::Addresses | Kind::FileNames | Kind::Networks | Kind::Sizes { .. })
    }

    /// The form of such a value in the file; completes "must be ...".
    #[must_use]
    pub fn file_form(self) -> Cow<'static, str> {
        let form = match self {
            Kind::Addresses => "a list of addresses, such as [\"127.0.0.1:8080\"]",
            Kind::FileNames => "a list of names, such as [\"index.html\"]",
            Kind::Networks => "a list of networks, such as [\"10.0.0.0/8\"]",
            Kind::Rate { .. } => "a rate in quotes, such as \"10Mbit\" or \"1Gbit\"",
            Kind::Sizes { .. } => "a list of sizes, such as [1000, \"50kB\"]",
            Kind::Path => "a path in quotes",
            Kind::Switch => "true or false, without quotes",
            Kind::AutoSwitch => "\"auto\", or true or false, without quotes",
            Kind::OneOf(words) => return one_of(words, Some('"')).into(),
            Kind::User => "a user in quotes, such as \"www-data\" or \"www-data:www-data\"",
            Kind::Count { .. } => "a whole number, without quotes",
            Kind::Duration { .. } => "a duration in quotes, such as \"250ms\", \"5s\", \"2m\" or \"1h\"",
            Kind::Size { .. } | Kind::MemorySize { .. } => {
                "a number of bytes, or a size in quotes, such as \"64KiB\" or \"1MiB\""
            }
            Kind::AutoSize { .. } => "\"auto\", a number of bytes, or a size in quotes, such as \"64MiB\"",
        };
        form.into()
    }
}

/// The words as a choice, each in these quotes or in none.
#[must_use]
pub fn one_of(words: &[&str], quote: Option<char>) -> String {
    let quote = quote.map(String::from).unwrap_or_default();
    let quoted: Vec<String> = words.iter().map(|word| format!("{quote}{word}{quote}")).collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}

/// The reason why a value was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the wrong value, from 0.
    pub item: usize,
    /// The error and the right form; completes "wrong value for X: ...".
    pub why: String,
    /// A further hint, if any.
    pub help: Option<String>,
}

impl Refusal {
    fn new(why: impl Into<String>) -> Self {
        Refusal { item: 0, why: why.into(), help: None }
    }

    fn helped(self, help: Option<String>) -> Self {
        Refusal { help, ..self }
    }
}

/// A value made from all texts that one source gave for an option.
pub(super) trait FromItems: Sized {
    fn from_items(items: &[&OsStr], kind: Kind) -> Result<Self, Vec<Refusal>>;
}

/// A user and optionally a group, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// The user.
    pub user: String,
    /// The group, if one was named.
    pub group: Option<String>,
}

/// A given size, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoSize {
    /// Flash chooses.
    Auto,
    /// This many bytes.
    Bytes(u64),
}

/// A given switch, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoSwitch {
    /// Flash chooses.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

impl AutoSwitch {
    /// Its words in help and completions.
    pub const WORDS: &'static [&'static str] = &[AUTO, "on", "off"];
}

/// A given path, or `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOrOff {
    /// None.
    Off,
    /// This path.
    At(PathBuf),
}

impl PathOrOff {
    /// The path.
    pub(super) fn path(self) -> Option<PathBuf> {
        match self {
            PathOrOff::Off => None,
            PathOrOff::At(path) => Some(path),
        }
    }
}

/// A value made from one text.
pub(super) trait FromText: Sized {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal>;
}

/// A value that an option may have several of.
pub(super) trait ListItem: FromText + PartialEq {
    /// Maximum values.
    const COUNT_MAX: usize;
    /// The error for an empty list, if it is not allowed.
    const NONE_REFUSED: Option<&'static str>;
    /// Whether a repeated value has another meaning.
    fn may_repeat(&self) -> bool;
}

impl<T: FromText> FromItems for T {
    fn from_items(items: &[&OsStr], kind: Kind) -> Result<Self, Vec<Refusal>> {
        let text = items.last().copied().unwrap_or_default();
        T::from_text(text, kind).map_err(|refusal| vec![refusal])
    }
}

impl<T: ListItem> FromItems for Vec<T> {
    fn from_items(items: &[&OsStr], kind: Kind) -> Result<Self, Vec<Refusal>> {
        let mut values = Vec::with_capacity(items.len().min(T::COUNT_MAX));
        let mut refusals = Vec::new();
        for (item, text) in items.iter().enumerate() {
            if item >= T::COUNT_MAX {
                let why = format!("too many values: at most {}", T::COUNT_MAX);
                refusals.push(Refusal { item, ..Refusal::new(why) });
                break;
            }
            match T::from_text(text, kind) {
                Ok(value) if values.contains(&value) && !value.may_repeat() => {
                    refusals.push(Refusal { item, ..Refusal::new("given twice") });
                }
                Ok(value) => values.push(value),
                Err(refusal) => refusals.push(Refusal { item, ..refusal }),
            }
        }
        if let (true, Some(why)) = (items.is_empty(), T::NONE_REFUSED) {
            refusals.push(Refusal::new(why));
        }
        if refusals.is_empty() { Ok(values) } else { Err(refusals) }
    }
}

impl FromText for SocketAddr {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        text.parse().map_err(|_| {
            let help = address_guess(text).map(|guess| format!("did you mean `{guess}`?"));
            Refusal::new("must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080").helped(help)
        })
    }
}

impl ListItem for SocketAddr {
    const COUNT_MAX: usize = 64;
    const NONE_REFUSED: Option<&'static str> = Some("name at least one address");

    /// Port 0 takes another free port each time.
    fn may_repeat(&self) -> bool {
        self.port() == 0
    }
}

/// The address meant by a usual short form: `8080`, `:8080`, `localhost:8080`, `::1` or `10.0.0.1`.
pub(super) fn address_guess(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
        return Some(SocketAddr::new(ip, 8080));
    }
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port = port.strip_prefix(['*', ':']).unwrap_or(port).trim_start_matches(':');
    let everywhere = text.starts_with('*');
    let ip = if everywhere { [0, 0, 0, 0] } else { [127, 0, 0, 1] };
    Some(SocketAddr::from((ip, port.parse().ok()?)))
}

/// The name of an index file.
impl FromText for String {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let name = utf8(text)?;
        if name.contains('/') {
            return Err(Refusal::new("must be the name of a file, without `/`"));
        }
        if name.is_empty() || name == "." || name == ".." || name.contains('\0') || name.len() > 255 {
            return Err(Refusal::new("must be the name of a file, such as index.html"));
        }
        Ok(name.to_owned())
    }
}

impl ListItem for String {
    const COUNT_MAX: usize = 16;
    const NONE_REFUSED: Option<&'static str> = None;

    fn may_repeat(&self) -> bool {
        false
    }
}

impl FromText for PathBuf {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        if text.is_empty() {
            return Err(Refusal::new("must not be empty"));
        }
        if text.as_encoded_bytes().contains(&0) {
            return Err(Refusal::new("must not contain a NUL byte"));
        }
        Ok(PathBuf::from(text))
    }
}

impl FromText for PathOrOff {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        if text.is_empty() || text == NO_LIST {
            return Ok(PathOrOff::Off);
        }
        PathBuf::from_text(text, kind).map(PathOrOff::At)
    }
}

impl FromText for bool {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        match utf8(text)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(Refusal::new("must be true or false")),
        }
    }
}

impl FromText for AutoSwitch {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        if text == AUTO {
            return Ok(AutoSwitch::Auto);
        }
        match bool::from_text(text, Kind::Switch) {
            Ok(true) => Ok(AutoSwitch::On),
            Ok(false) => Ok(AutoSwitch::Off),
            Err(_) => Err(Refusal::new(format!("must be {}", one_of(Self::WORDS, None)))),
        }
    }
}

impl<T: Choice> FromText for T {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        let Kind::OneOf(words) = kind else { return Err(Refusal::new("must be one of several words")) };
        let place = words.iter().position(|word| *word == text);
        place.and_then(|place| T::ALL.get(place)).copied().ok_or_else(|| {
            let why = format!("must be {}", one_of(words, None));
            let hint = T::hint(text).or_else(|| suggest::did_you_mean(text, words.iter().copied()));
            Refusal::new(why).helped(hint)
        })
    }
}

impl FromText for UserName {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let is_name = |name: &str| {
            let graphic = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
            // The largest number means "no change" in setresuid(2).
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
            let fits = !is_number || name.parse::<u32>().is_ok_and(|number| number < u32::MAX);
            !name.is_empty() && name.len() <= 255 && graphic && fits
        };
        if !is_name(user) || !group.is_none_or(is_name) {
            return Err(Refusal::new("must be a user, such as www-data or www-data:www-data"));
        }
        Ok(UserName { user: user.to_owned(), group: group.map(ToOwned::to_owned) })
    }
}

/// A count, a duration in milliseconds, or a size in bytes, depending on the kind.
impl FromText for u64 {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        let (value, least, most, show): (_, _, _, fn(u64) -> String) = match kind {
            Kind::Duration { least_ms, most_ms } => {
                (units::parse_duration_ms(text), least_ms, most_ms, units::duration_text)
            }
            Kind::Size { least_bytes, most_bytes } | Kind::Sizes { least_bytes, most_bytes } => {
                (units::parse_size_bytes(text), least_bytes, most_bytes, units::size_text)
            }
            Kind::MemorySize { least_bytes, most_bytes } => {
                (units::parse_memory_bytes(text), least_bytes, most_bytes, units::size_text)
            }
            Kind::Rate { least_bits_per_s, most_bits_per_s } => {
                (units::parse_rate_bits(text), least_bits_per_s, most_bits_per_s, units::rate_text)
            }
            Kind::Count { least, most } => (count(text), least, most, |count| count.to_string()),
            _ => (count(text), 0, u64::MAX, |count| count.to_string()),
        };
        match value.map_err(Refusal::new)? {
            value if (least..=most).contains(&value) => Ok(value),
            _ => Err(Refusal::new(format!("must be from {} to {}", show(least), show(most)))),
        }
    }
}

impl FromText for AutoSize {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        let Kind::AutoSize { least_bytes, most_bytes } = kind else {
            return Err(Refusal::new("must be `auto` or a size"));
        };
        if text == AUTO {
            return Ok(AutoSize::Auto);
        }
        let bytes = u64::from_text(text, Kind::MemorySize { least_bytes, most_bytes });
        bytes.map(AutoSize::Bytes).map_err(|refusal| {
            let why = format!("{}, or write `{AUTO}`", refusal.why);
            Refusal { why, ..refusal }
        })
    }
}

/// A whole number; a number too large for 64 bits is `u64::MAX`, above the bounds of every option.
fn count(text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("must be a whole number, not negative".to_owned());
    }
    Ok(text.parse().unwrap_or(u64::MAX))
}

pub(super) fn utf8(text: &OsStr) -> Result<&str, Refusal> {
    text.to_str().ok_or_else(|| Refusal::new("must be UTF-8 text"))
}

/// A host in the form that virtual hosts are looked up by: lower case, no port, no final dot.
pub(super) fn host(text: &str) -> Result<String, Refusal> {
    let lower = text.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    if name.starts_with('[') || name.matches(':').count() > 1 {
        return bracketed(name);
    }
    if let Some((name, _)) = name.split_once(':') {
        let help = Some(format!("write `{name}`: a site answers on every address that Flash listens on"));
        return Err(Refusal::new("must be a host without a port").helped(help));
    }
    if !name.is_ascii() {
        let help = "write its ASCII form, such as `xn--bcher-kva.example`";
        return Err(Refusal::new("must be ASCII").helped(Some(help.to_owned())));
    }
    let labels = name.strip_prefix("*.").unwrap_or(name);
    if labels.contains('*') {
        let why = "`*` can replace only the first part, as in `*.example.org`";
        return Err(Refusal::new(why));
    }
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name.len() > 253 || !labels.split('.').all(fits) {
        return Err(Refusal::new("must be a host name, such as `example.org` or `*.example.org`"));
    }
    Ok(name.to_owned())
}

/// An IPv6 address as in `Host`, in brackets.
fn bracketed(name: &str) -> Result<String, Refusal> {
    let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inner.unwrap_or(name).parse::<std::net::Ipv6Addr>() {
        Ok(address) if inner.is_some() => Ok(format!("[{address}]")),
        Ok(address) => {
            Err(Refusal::new("an IPv6 address needs brackets").helped(Some(format!("write `[{address}]`"))))
        }
        Err(_) => Err(Refusal::new("must be a host name or an IPv6 address in brackets, without a port")),
    }
}

/// A file extension, lower case, without its dot.
pub(super) fn extension(text: &str) -> Result<String, Refusal> {
    if let Some(rest) = text.strip_prefix('.') {
        return Err(
            Refusal::new("must be an extension without its dot").helped(Some(format!("write `{rest}`")))
        );
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'.';
    if text.is_empty() || text.len() > 32 || !text.bytes().all(plain) {
        return Err(Refusal::new("must be a file extension without its dot, such as `webmanifest`"));
    }
    Ok(text.to_ascii_lowercase())
}

/// A content type: `type/subtype`, with or without parameters (RFC 9110 section 8.3.1).
///
/// It accepts only printable ASCII, which can stand in a response head unchanged.
pub(super) fn content_type(text: &str) -> Result<String, Refusal> {
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    let essence = text.split_once(';').map_or(text, |(essence, _)| essence);
    let well_formed = essence.trim_end().split_once('/').is_some_and(|(main, sub)| token(main) && token(sub));
    let printable = text.len() <= 255 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if well_formed && printable {
        Ok(text.to_owned())
    } else {
        Err(Refusal::new("must be a content type, such as \"text/plain; charset=utf-8\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        let refusal = result.unwrap_err();
        format!("{}{}", refusal.why, refusal.help.map(|help| format!(" / {help}")).unwrap_or_default())
    }

    fn number(text: &str, kind: Kind) -> Result<u64, Refusal> {
        u64::from_text(OsStr::new(text), kind)
    }

    #[test]
    fn numbers_keep_their_bounds() {
        let count = Kind::Count { least: 1, most: 256 };
        assert_eq!(number("1", count), Ok(1));
        assert_eq!(number("256", count), Ok(256));
        for text in ["0", "257", "99999999999999999999999"] {
            assert_eq!(why(number(text, count)), "must be from 1 to 256", "{text}");
        }
        for text in ["", "x", "1.5", "+1", "1 ", "-1"] {
            assert_eq!(why(number(text, count)), "must be a whole number, not negative", "{text}");
        }
        let duration = Kind::Duration { least_ms: 1, most_ms: 3_600_000 };
        assert_eq!(why(number("0", duration)), "must be from 1ms to 1h");
        assert_eq!(why(number("99999999999999999999h", duration)), "must be from 1ms to 1h");
        let size = Kind::Size { least_bytes: 0, most_bytes: 1 << 40 };
        assert_eq!(why(number("2TiB", size)), "must be from 0 to 1TiB");
        assert_eq!(number("64KiB", size), Ok(65_536));
    }

    #[test]
    fn a_size_may_be_left_to_flash() {
        let kind = Kind::AutoSize { least_bytes: 0, most_bytes: 1 << 40 };
        let size = |text: &str| AutoSize::from_text(OsStr::new(text), kind);
        assert_eq!(size("auto"), Ok(AutoSize::Auto));
        assert_eq!(size("0"), Ok(AutoSize::Bytes(0)));
        assert_eq!(size("2GiB"), Ok(AutoSize::Bytes(2 << 30)));
        assert_eq!(why(size("2TiB")), "must be from 0 to 1TiB, or write `auto`");
        assert!(why(size("atuo")).starts_with("not a size; "));
        assert!(why(size("")).ends_with(", or write `auto`"));
    }

    #[test]
    fn addresses_say_what_was_meant() {
        let address = |text: &str| SocketAddr::from_text(OsStr::new(text), Kind::Addresses);
        assert!(address("127.0.0.1:0").is_ok());
        assert!(address("[::1]:8080").is_ok());
        let meant = [
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("localhost:80", "127.0.0.1:80"),
            ("*:80", "0.0.0.0:80"),
            ("::1", "[::1]:8080"),
            ("10.0.0.1", "10.0.0.1:8080"),
        ];
        for (text, guess) in meant {
            assert!(why(address(text)).ends_with(&format!("did you mean `{guess}`?")), "{text}");
        }
        assert!(!why(address("example.org:80")).contains("did you mean"));
        assert!(!why(address("127.0.0.1:99999")).contains("did you mean"));
    }

    #[test]
    fn a_list_shows_all_that_is_wrong() {
        let items = ["127.0.0.1:80", "x", "127.0.0.1:80", "127.0.0.1:0", "127.0.0.1:0"].map(OsStr::new);
        let refusals = Vec::<SocketAddr>::from_items(&items, Kind::Addresses).unwrap_err();
        assert_eq!(refusals.iter().map(|refusal| refusal.item).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(refusals[1].why, "given twice");
        let many: Vec<String> = (0..17).map(|n| format!("{n}.html")).collect();
        let many: Vec<&OsStr> = many.iter().map(OsStr::new).collect();
        let refusals = Vec::<String>::from_items(&many, Kind::FileNames).unwrap_err();
        assert_eq!(refusals[0].why, "too many values: at most 16");
    }

    #[test]
    fn index_names_are_names() {
        let name = |text: &str| String::from_text(OsStr::new(text), Kind::FileNames);
        assert_eq!(name("index.html").unwrap(), "index.html");
        for text in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_made_uniform() {
        assert_eq!(host("Example.ORG").unwrap(), "example.org");
        assert_eq!(host("example.org.").unwrap(), "example.org");
        assert_eq!(host("*.Example.org").unwrap(), "*.example.org");
        assert_eq!(host("127.0.0.1").unwrap(), "127.0.0.1");
        assert_eq!(host("[::0:1]").unwrap(), "[::1]");
        assert!(why(host("example.org:80")).contains("without a port / write `example.org`"));
        assert!(why(host("::1")).contains("write `[::1]`"));
        assert!(why(host("bücher.example")).contains("xn--"));
        for text in
            ["", "*", "*.", ".", "a..b", "a b", "www.*.org", "*x.org", "http://x", "[::1]:80", "a/b", "*.*.a"]
        {
            assert!(host(text).is_err(), "{text}");
        }
        assert!(host(&"a.".repeat(127)).is_ok());
        assert!(host(&"a.".repeat(128)).is_err());
    }

    #[test]
    fn types_can_stand_in_a_head() {
        assert_eq!(content_type("text/plain; charset=utf-8").unwrap(), "text/plain; charset=utf-8");
        assert!(content_type("application/vnd.api+json").is_ok());
        for text in
            ["", "text", "text/", "/plain", "text/plain\r\nX: y", "te xt/plain", "text/pläin", "; a=b"]
        {
            assert!(content_type(text).is_err(), "{text:?}");
        }
        assert_eq!(extension("MJS").unwrap(), "mjs");
        assert!(why(extension(".mjs")).contains("write `mjs`"));
        for text in ["", "tar.gz", "a b", "a/b"] {
            assert!(extension(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn switches_take_the_usual_words() {
        let switch = |text: &str| bool::from_text(OsStr::new(text), Kind::Switch);
        for text in ["true", "yes", "ON", "1"] {
            assert_eq!(switch(text), Ok(true));
        }
        for text in ["false", "No", "off", "0"] {
            assert_eq!(switch(text), Ok(false));
        }
        assert_eq!(why(switch("maybe")), "must be true or false");
        let auto = |text: &str| AutoSwitch::from_text(OsStr::new(text), Kind::AutoSwitch);
        assert_eq!((auto("auto"), auto("on")), (Ok(AutoSwitch::Auto), Ok(AutoSwitch::On)));
        assert_eq!((auto("true"), auto("false")), (Ok(AutoSwitch::On), Ok(AutoSwitch::Off)));
        assert_eq!(why(auto("maybe")), "must be auto, on or off");
    }
}
