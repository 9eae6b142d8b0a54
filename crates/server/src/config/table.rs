//! The form of a table of options: what a row says, and what follows from it.
//!
//! `config::options` has the rows of the server and its sites, `config::route_options` those of a route, and `config::rule_options`
//! those of a rule. Each row becomes a field
//! of a struct of given values, and knows how it is read, how it reaches the settings, and how it is printed.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::{NotUtf8, Problem, Refusal};
use super::file_path::FilePath;
use super::kind::Kind;
use super::schedule::Cutoffs;
use super::service::ControlSocket;
use super::values::{OFF, PathOrWord, Value};

/// The values that one source gave, or several merged: a field for each option.
pub trait Table: Default + 'static {
    /// The facts that a row of this table has in addition to those of [`Spec`].
    type Details: 'static;
    /// The settings that the values lead to.
    type Target: 'static;
    /// The rows, in the order of the documents.
    fn rows() -> &'static [Spec<Self>];
}

/// One option.
pub struct Spec<G: Table> {
    /// The key in the file.
    pub key: &'static str,
    /// The kind of the value, with bounds.
    pub kind: Kind,
    /// The default.
    pub default: DefaultValue,
    /// The help text, one sentence.
    pub help: &'static str,
    /// Where it is allowed, and how it is shown there.
    pub details: G::Details,
    pub(super) store: Store<G>,
    pub(super) origin: fn(&G) -> Option<&Origin>,
    pub(super) rebase: fn(&mut G, &Path),
    pub(super) target: G::Target,
}

/// Reads the values of a source, and stores them in their field.
type Store<G> = fn(&mut G, &[&OsStr], Kind, Origin) -> Result<(), Vec<Refusal>>;

/// How an option reaches its field of `T`, and how that field is printed.
pub struct Field<G, T: 'static> {
    pub(super) put: fn(&G, &mut T),
    pub(super) show: Show<T>,
}

/// Prints a field of `T` as the texts of its option; none if no value of the option means it.
pub(super) type Show<T> = fn(&T, Kind) -> Shown;
/// The texts of an option, if any.
pub(super) type Shown = Result<Option<Vec<String>>, NotUtf8>;

/// The value without any source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// A value, written as in the environment.
    Text(&'static str),
    /// A value that depends on something else, as this text says.
    Depends(&'static str),
    /// No value.
    None,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The config file, at these bytes.
    File(Range<usize>),
    /// No source: the default.
    Default,
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub origin: Origin,
}

impl Problem {
    /// A problem with a value from this source.
    pub(super) fn given(origin: &Origin, title: impl Into<String>, why: impl Into<String>) -> Self {
        match origin {
            Origin::File(span) => Problem::at(span.clone(), title, why),
            _ => Problem::plain(title, why),
        }
    }
}

impl<G: Table> Spec<G> {
    /// Parses all values that a source gave, and stores them in `into`.
    ///
    /// # Errors
    ///
    /// Gives the reason for each wrong value; nothing is stored then.
    pub fn set(&self, into: &mut G, items: &[&OsStr], origin: Origin) -> Result<(), Vec<Refusal>> {
        (self.store)(into, items, self.kind, origin)
    }

    /// Where the option was given, if its value is not the default.
    pub(super) fn given_by<'g>(&self, given: &'g G) -> Option<&'g Origin> {
        (self.origin)(given).filter(|origin| **origin != Origin::Default)
    }

    /// Stores the default, if the table has its text.
    pub(super) fn set_default(&self, into: &mut G) {
        if let DefaultValue::Text(text) = self.default {
            let set = self.set(into, &[OsStr::new(text)], Origin::Default);
            debug_assert_eq!(set, Ok(()), "the default of {}", self.key);
        }
    }
}

pub(super) fn find<G: Table>(key: &str) -> Option<&'static Spec<G>> {
    G::rows().iter().find(|spec| spec.key == key)
}

pub(super) fn defaults<G: Table>() -> G {
    let mut defaults = G::default();
    G::rows().iter().for_each(|spec| spec.set_default(&mut defaults));
    defaults
}

/// Makes relative paths absolute, from `folder`, which must be absolute.
pub(super) fn rebase<G: Table>(given: &mut G, folder: &Path) {
    G::rows().iter().for_each(|spec| (spec.rebase)(given, folder));
}

/// A field of the settings for values of the type `V`.
pub(super) trait Holds<V> {
    fn hold(&mut self, value: V);
    /// The value that leads to the field; none if no value does.
    fn held(&self) -> Option<V>;
}

impl<V: Clone> Holds<V> for V {
    fn hold(&mut self, value: V) {
        *self = value;
    }

    fn held(&self) -> Option<V> {
        Some(self.clone())
    }
}

impl Holds<u64> for usize {
    fn hold(&mut self, value: u64) {
        // The bounds in the tables fit.
        *self = usize::try_from(value).unwrap_or(usize::MAX);
    }

    fn held(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Holds<Cutoffs> for Vec<u64> {
    fn hold(&mut self, Cutoffs(sizes): Cutoffs) {
        *self = sizes;
    }

    fn held(&self) -> Option<Cutoffs> {
        (!self.is_empty()).then(|| Cutoffs(self.clone()))
    }
}

/// A text that can be off.
impl Holds<String> for Option<String> {
    fn hold(&mut self, value: String) {
        *self = Some(value).filter(|value| value != OFF);
    }

    fn held(&self) -> Option<String> {
        Some(self.clone().unwrap_or_else(|| OFF.to_owned()))
    }
}

impl Holds<PathBuf> for FilePath {
    fn hold(&mut self, path: PathBuf) {
        *self = path.into();
    }

    fn held(&self) -> Option<PathBuf> {
        Some(self.to_path_buf())
    }
}

impl Holds<Vec<PathBuf>> for Vec<FilePath> {
    fn hold(&mut self, paths: Vec<PathBuf>) {
        *self = paths.into_iter().map(FilePath::from).collect();
    }

    fn held(&self) -> Option<Vec<PathBuf>> {
        (!self.is_empty()).then(|| self.iter().map(|path| path.to_path_buf()).collect())
    }
}

impl Holds<PathBuf> for Option<FilePath> {
    fn hold(&mut self, path: PathBuf) {
        *self = Some(path.into());
    }

    fn held(&self) -> Option<PathBuf> {
        self.as_ref().map(|path| path.to_path_buf())
    }
}

impl Holds<PathOrWord> for Option<FilePath> {
    fn hold(&mut self, value: PathOrWord) {
        *self = match value {
            PathOrWord::Word => None,
            PathOrWord::At(path) => Some(path.into()),
        };
    }

    fn held(&self) -> Option<PathOrWord> {
        Some(self.as_ref().map_or(PathOrWord::Word, |path| PathOrWord::At(path.to_path_buf())))
    }
}

impl Holds<PathOrWord> for ControlSocket {
    fn hold(&mut self, value: PathOrWord) {
        *self = match value {
            PathOrWord::Word => ControlSocket::Off,
            PathOrWord::At(path) => ControlSocket::At(path.into()),
        };
    }

    fn held(&self) -> Option<PathOrWord> {
        match self {
            ControlSocket::Default => None,
            ControlSocket::Off => Some(PathOrWord::Word),
            ControlSocket::At(path) => Some(PathOrWord::At(path.to_path_buf())),
        }
    }
}

/// Stores a given value in its field.
pub(super) fn put<V: Clone>(given: Option<&Given<V>>, field: &mut impl Holds<V>) {
    if let Some(given) = given {
        field.hold(given.value.clone());
    }
}

/// The texts of the value that leads to a field.
pub(super) fn show<V: Value>(field: &impl Holds<V>, kind: Kind) -> Shown {
    field.held().map(|value| value.to_items(kind)).transpose()
}

pub(super) fn one(text: impl Into<String>) -> Shown {
    Ok(Some(vec![text.into()]))
}

/// Makes a struct of given values, its table, and the structs of the settings that its rows fill. A row: key: type, place, kind,
/// default, [target], help. A target `[group.field as type]` is also a field of the struct of its group; without `as`, the field
/// has the type of the values.
macro_rules! rows {
    ($(#[$about:meta])* $given:ident, $details:ty, $target:ty, $table:ident, $rows:tt $($group:ident: $settings:tt)*) => {
        rows! { @given $(#[$about])* $given, $details, $target, $table, $rows }
        $(fields! { $group $settings [] $rows })*
    };
    (@given $(#[$about:meta])* $given:ident, $details:ty, $target:ty, $table:ident,
     { $($key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [$($to:tt)*], $help:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct $given {
            $(#[doc = $help] pub $key: Option<$crate::config::table::Given<$type>>,)*
        }

        /// Every option, in the order of the documents.
        pub static $table: &[$crate::config::table::Spec<$given>] = &[$($crate::config::table::Spec {
            key: stringify!($key),
            kind: $kind,
            default: $default,
            help: $help,
            details: $at,
            store: |given, items, kind, origin| {
                let value = <$type as $crate::config::values::Value>::from_items(items, kind)?;
                given.$key = Some($crate::config::table::Given { value, origin });
                Ok(())
            },
            origin: |given| given.$key.as_ref().map(|given| &given.origin),
            rebase: |given, folder| {
                if let Some(given) = &mut given.$key {
                    $crate::config::values::Value::rebase(&mut given.value, folder);
                }
            },
            target: target!($key: $type, $($to)*),
        },)*];

        impl $crate::config::table::Table for $given {
            type Details = $details;
            type Target = $target;

            fn rows() -> &'static [$crate::config::table::Spec<Self>] {
                $table
            }
        }

        impl $given {
            /// These values, completed by those of the weaker source `below`.
            #[must_use]
            pub fn or(self, below: Self) -> Self {
                Self { $($key: self.$key.or(below.$key),)* }
            }
        }
    };
}
pub(super) use rows;

/// Makes the struct of a group of settings: a field for each row of the group, and those that no row has. It reads the rows one
/// by one.
macro_rules! fields {
    ($group:ident { $(#[$about:meta])* $name:ident { $($more:tt)* } } [$($fields:tt)*] {}) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($fields)* $($more)* }
    };
    (server $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [server.$field:ident $(as $held:ty)?], $help:literal; $($rows:tt)* }) => {
        fields! { server $settings [$($fields)* #[doc = $help] pub $field: held!($type $(, $held)?),] { $($rows)* } }
    };
    (site $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [site.$field:ident $(as $held:ty)?], $help:literal; $($rows:tt)* }) => {
        fields! { site $settings [$($fields)* #[doc = $help] pub $field: held!($type $(, $held)?),] { $($rows)* } }
    };
    (route $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [route.$field:ident], $help:literal; $($rows:tt)* }) => {
        fields! { route $settings [$($fields)* #[doc = $help] pub $field: $type,] { $($rows)* } }
    };
    (rule $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [rule.$field:ident $(as $held:ty)?], $help:literal; $($rows:tt)* }) => {
        fields! { rule $settings [
            $($fields)*
            #[doc = $help]
            #[serde(default, skip_serializing_if = "crate::config::table::is_none")]
            pub $field: held!($type $(, $held)?),
        ] { $($rows)* } }
    };
    (probe $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [probe?.$field:ident], $help:literal; $($rows:tt)* }) => {
        fields! { probe $settings [$($fields)* #[doc = $help] pub $field: $type,] { $($rows)* } }
    };
    (program $settings:tt [$($fields:tt)*] { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [program?.$field:ident], $help:literal; $($rows:tt)* }) => {
        fields! { program $settings [$($fields)* #[doc = $help] pub $field: $type,] { $($rows)* } }
    };
    ($group:ident $settings:tt $fields:tt { $key:ident: $type:ty, $at:expr, $kind:expr, $default:expr, [$($to:tt)*], $help:literal; $($rows:tt)* }) => {
        fields! { $group $settings $fields { $($rows)* } }
    };
}
pub(super) use fields;

/// Whether a value is that of a rule which says nothing about it. It is left out where processes get their settings: there can be very many
/// rules.
pub(super) fn is_none<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The type of a field: that of the values, unless its row names another one.
macro_rules! held {
    ($type:ty) => {
        $type
    };
    ($type:ty, $held:ty) => {
        $held
    };
}
pub(super) use held;
