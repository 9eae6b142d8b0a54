//! The values of options: read from the texts of a source, and written as such texts again.
//!
//! Every source (flag, environment, file) passes its values as text, so each rule about a value is here once. Called by the
//! tables of options. It must not touch the system: `config::resolve` checks whether a folder exists.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::choices::Choice;
use super::error::{NotUtf8, Refusal};
use super::kind::{Bounds, Kind, TextFormat, Unit, one_of};
use super::suggest;

/// The word for a value that Flash chooses.
const AUTO: &str = "auto";
/// The word for no value. Instead of a path, the empty path means the same.
pub(super) const OFF: &str = "off";
const WORDS_MAX: usize = 256;

/// The value of an option: all that one source gave for it.
pub(super) trait Value: Clone {
    fn from_items(items: &[&OsStr], kind: Kind) -> Result<Self, Vec<Refusal>>;
    /// The texts that [`Value::from_items`] reads.
    fn to_items(&self, kind: Kind) -> Result<Vec<String>, NotUtf8>;

    /// Makes a relative path absolute, from `folder`, which must be absolute.
    fn rebase(&mut self, _folder: &Path) {}
}

/// A value made from one text.
pub(super) trait Item: Clone {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal>;
    /// The text that [`Item::from_text`] reads.
    fn to_text(&self, kind: Kind) -> Result<String, NotUtf8>;

    /// As [`Value::rebase`].
    fn rebase(&mut self, _folder: &Path) {}
}

/// A user and optionally a group, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// The user.
    pub user: String,
    /// The group, if one was named.
    pub group: Option<String>,
}

/// A given value, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auto<T> {
    /// Flash chooses.
    Auto,
    /// This value.
    Given(T),
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command(pub Vec<String>);

/// A given path, or the word of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOrWord {
    /// The word.
    Word,
    /// This path.
    At(PathBuf),
}

/// A value that an option may have several of.
pub(super) trait ListItem: Item + PartialEq {
    const COUNT_MAX: usize = 64;
    /// The error for an empty list, if it is not allowed.
    const NONE_REFUSED: Option<&'static str> = None;

    /// Whether a repeated value has another meaning.
    fn may_repeat(&self) -> bool {
        false
    }
}

impl<T: Item> Value for T {
    fn from_items(items: &[&OsStr], kind: Kind) -> Result<Self, Vec<Refusal>> {
        let text = items.last().copied().unwrap_or_default();
        T::from_text(text, kind).map_err(|refusal| vec![refusal])
    }

    fn to_items(&self, kind: Kind) -> Result<Vec<String>, NotUtf8> {
        Ok(vec![self.to_text(kind)?])
    }

    fn rebase(&mut self, folder: &Path) {
        Item::rebase(self, folder);
    }
}

impl<T: ListItem> Value for Vec<T> {
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

    fn rebase(&mut self, folder: &Path) {
        self.iter_mut().for_each(|item| Item::rebase(item, folder));
    }

    fn to_items(&self, kind: Kind) -> Result<Vec<String>, NotUtf8> {
        self.iter().map(|item| item.to_text(kind)).collect()
    }
}

impl Item for SocketAddr {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        text.parse().map_err(|_| {
            let help = address_guess(text).map(|guess| format!("did you mean `{guess}`?"));
            Refusal::new("must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080").helped(help)
        })
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.to_string())
    }
}

impl ListItem for SocketAddr {
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

impl Item for String {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        let format =
            if let Kind::Text(format) | Kind::Texts(format) = kind { format } else { TextFormat::FileName };
        format.read(utf8(text)?)
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.clone())
    }
}

impl ListItem for u64 {
    fn may_repeat(&self) -> bool {
        true
    }
}

impl ListItem for String {
    const COUNT_MAX: usize = 16;
}

impl Item for PathBuf {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        if text.is_empty() {
            return Err(Refusal::new("must not be empty"));
        }
        if text.as_encoded_bytes().contains(&0) {
            return Err(Refusal::new("must not contain a NUL byte"));
        }
        Ok(PathBuf::from(text))
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        self.to_str().map(ToOwned::to_owned).ok_or_else(|| NotUtf8(self.display().to_string()))
    }

    /// Without `.` parts. A `..` stays: only the system knows its target.
    fn rebase(&mut self, folder: &Path) {
        *self = folder.join(&*self).components().collect();
    }
}

impl ListItem for PathBuf {
    const COUNT_MAX: usize = 4;
}

impl Item for PathOrWord {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        match kind {
            Kind::PathOr(word) if text == word || (text.is_empty() && word == OFF) => Ok(PathOrWord::Word),
            _ => PathBuf::from_text(text, kind).map(PathOrWord::At),
        }
    }

    fn to_text(&self, kind: Kind) -> Result<String, NotUtf8> {
        match (self, kind) {
            (PathOrWord::At(path), _) => path.to_text(kind),
            (PathOrWord::Word, Kind::PathOr(word)) => Ok(word.to_owned()),
            (PathOrWord::Word, _) => Ok(String::new()),
        }
    }

    fn rebase(&mut self, folder: &Path) {
        if let PathOrWord::At(path) = self {
            Item::rebase(path, folder);
        }
    }
}

impl Item for bool {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        match utf8(text)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(Refusal::new("must be true or false")),
        }
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.to_string())
    }
}

impl<T: Choice> Item for T {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        T::ALL.iter().copied().find(|value| value.word() == text).ok_or_else(|| {
            let why = format!("must be {}", one_of(T::WORDS, None));
            let hint = T::hint(text).or_else(|| suggest::did_you_mean(text, T::WORDS.iter().copied()));
            Refusal::new(why).helped(hint)
        })
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.word().to_owned())
    }
}

impl Item for UserName {
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

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        let group = self.group.as_ref().map(|group| format!(":{group}")).unwrap_or_default();
        Ok(format!("{}{group}", self.user))
    }
}

/// A number in the unit of its kind.
impl Item for u64 {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        let bounds = bounds(kind);
        match bounds.unit.parse(utf8(text)?).map_err(Refusal::new)? {
            value if (bounds.least..=bounds.most).contains(&value) => Ok(value),
            _ => Err(Refusal::new(format!("must be from {bounds}"))),
        }
    }

    fn to_text(&self, kind: Kind) -> Result<String, NotUtf8> {
        Ok(bounds(kind).unit.text(*self))
    }
}

fn bounds(kind: Kind) -> Bounds {
    match kind {
        Kind::Number(bounds) | Kind::Numbers(bounds) | Kind::AutoNumber(bounds) => bounds,
        _ => Bounds { unit: Unit::Count, least: 0, most: u64::MAX },
    }
}

impl<T: Item> Item for Auto<T> {
    fn from_text(text: &OsStr, kind: Kind) -> Result<Self, Refusal> {
        if text == AUTO {
            return Ok(Auto::Auto);
        }
        T::from_text(text, kind).map(Auto::Given).map_err(|refusal| {
            let why = match kind.words() {
                [] => format!("{}, or write `{AUTO}`", refusal.why),
                words => format!("must be {}", one_of(words, None)),
            };
            Refusal { why, ..refusal }
        })
    }

    fn to_text(&self, kind: Kind) -> Result<String, NotUtf8> {
        match self {
            Auto::Auto => Ok(AUTO.to_owned()),
            Auto::Given(value) => value.to_text(kind),
        }
    }
}

impl Value for Command {
    fn from_items(items: &[&OsStr], _: Kind) -> Result<Self, Vec<Refusal>> {
        let refuse = |why: String| Err(vec![Refusal::new(why)]);
        let words: Option<Vec<String>> =
            items.iter().map(|word| word.to_str().map(ToOwned::to_owned)).collect();
        match words {
            Some(words) if words.first().is_some_and(|word| !word.is_empty()) => {
                if words.len() > WORDS_MAX || words.iter().any(|word| word.contains('\0')) {
                    return refuse(format!("must have at most {WORDS_MAX} words, without NUL bytes"));
                }
                Ok(Command(words))
            }
            _ => refuse(format!("must be {}", Kind::Command.file_form())),
        }
    }

    fn to_items(&self, _: Kind) -> Result<Vec<String>, NotUtf8> {
        Ok(self.0.clone())
    }

    fn rebase(&mut self, folder: &Path) {
        // A name without a slash is looked for in the directories for programs.
        if let Some(program) = self.0.first_mut().filter(|program| program.contains('/')) {
            *program = folder.join(&*program).to_string_lossy().into_owned();
        }
    }
}

pub(super) fn utf8(text: &OsStr) -> Result<&str, Refusal> {
    text.to_str().ok_or_else(|| Refusal::new("must be UTF-8 text"))
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
        let kind = |unit, least, most| Kind::Number(Bounds { unit, least, most });
        let count = kind(Unit::Count, 1, 256);
        assert_eq!(number("1", count), Ok(1));
        assert_eq!(number("256", count), Ok(256));
        for text in ["0", "257", "99999999999999999999999"] {
            assert_eq!(why(number(text, count)), "must be from 1 to 256", "{text}");
        }
        for text in ["", "x", "1.5", "+1", "1 ", "-1"] {
            assert_eq!(why(number(text, count)), "must be a whole number, not negative", "{text}");
        }
        let duration = kind(Unit::Millis, 1, 3_600_000);
        assert_eq!(why(number("0", duration)), "must be from 1ms to 1h");
        assert_eq!(why(number("99999999999999999999h", duration)), "must be from 1ms to 1h");
        let size = kind(Unit::Bytes, 0, 1 << 40);
        assert_eq!(why(number("2TiB", size)), "must be from 0 to 1TiB");
        assert_eq!(number("64KiB", size), Ok(65_536));
    }

    #[test]
    fn a_size_may_be_left_to_flash() {
        let kind = Kind::AutoNumber(Bounds { unit: Unit::MemoryBytes, least: 0, most: 1 << 40 });
        let size = |text: &str| Auto::<u64>::from_text(OsStr::new(text), kind);
        assert_eq!(size("auto"), Ok(Auto::Auto));
        assert_eq!(size("0"), Ok(Auto::Given(0)));
        assert_eq!(size("2GiB"), Ok(Auto::Given(2 << 30)));
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
        let refusals = Vec::<String>::from_items(&many, Kind::Texts(TextFormat::FileName)).unwrap_err();
        assert_eq!(refusals[0].why, "too many values: at most 16");
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
        let auto = |text: &str| Auto::<bool>::from_text(OsStr::new(text), Kind::AutoSwitch);
        assert_eq!((auto("auto"), auto("on")), (Ok(Auto::Auto), Ok(Auto::Given(true))));
        assert_eq!((auto("true"), auto("false")), (Ok(Auto::Given(true)), Ok(Auto::Given(false))));
        assert_eq!(why(auto("maybe")), "must be auto, on or off");
    }
}
