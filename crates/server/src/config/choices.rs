//! The settings that are one of several words.
//!
//! The words are the same on the command line, in the environment, in the file, and in the settings that a process passes on. It
//! must not know any option.

use flash_engine::LogFormat;
use flash_prompt::mechanism::MechanismKind;
use flash_worker::{HelperKind, SendBy};
use serde::{Deserialize, Serialize};

/// A value from a fixed set.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// The words, in the order of [`Choice::ALL`].
    const WORDS: &'static [&'static str];
    const ALL: &'static [Self];

    /// A hint for an unknown text for which the nearest word would mislead.
    fn hint(_text: &str) -> Option<String> {
        None
    }

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().zip(Self::WORDS).find(|(other, _)| **other == self);
        found.map_or("", |(_, word)| word)
    }
}

/// Makes each enum from its values and their words.
macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of])* #[serde(rename = $word)] $value,)*
        }

        words! { $name { $($value = $word),* } }
    )*};
}

/// Gives each enum its words.
macro_rules! words {
    ($($name:ident $(hint $hint:ident)? { $($value:ident = $word:literal),* })*) => {$(
        impl Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word),*];
            const ALL: &'static [Self] = &[$($name::$value),*];

            $(fn hint(text: &str) -> Option<String> {
                $hint(text)
            })?
        }
    )*};
}

choices! {
    /// The architecture: which part of a server waits for the disk (flash-1999, section 3).
    Architecture {
        /// Asymmetric multi-process event-driven: helpers wait, while the event loop of each worker continues.
        #[default]
        Amped = "amped",
        /// Single-process event-driven: the event loop waits.
        Sped = "sped",
        /// Multi-process: one process per open connection waits.
        Mp = "mp",
        /// Multi-threaded: one thread per open connection waits.
        Mt = "mt",
    }

    /// The schedule: which connection's bytes go first.
    SchedulePolicy {
        /// The kernel shares the link.
        #[default]
        Fair = "fair",
        /// Responses with few bytes left.
        Srpt = "srpt",
    }

    /// The times of a file that its `ETag` holds, in addition to its length.
    EtagTime {
        /// The modification time.
        #[default]
        Modified = "modified",
        /// The modification time and the change time.
        Changed = "changed",
    }

    /// The meaning of `%2F` in a path.
    EncodedSlash {
        /// A slash.
        #[default]
        Decode = "decode",
        /// An error.
        Refuse = "refuse",
    }

    /// The answer to plain HTTP of a site that has HTTPS.
    HttpsRedirect {
        /// The same as over HTTPS.
        #[default]
        Off = "off",
        /// A redirect that most clients follow with GET.
        Moved = "301",
        /// A redirect that clients follow with the same method.
        Permanent = "308",
    }

    /// The field in which trusted proxies name the client.
    ProxyField {
        /// `X-Forwarded-For`, and `X-Forwarded-Proto` for the scheme.
        #[default]
        XForwardedFor = "x-forwarded-for",
        /// `Forwarded` (RFC 7239).
        Forwarded = "forwarded",
    }

    /// The status of a redirect.
    RedirectStatus {
        /// For good; most clients follow with GET.
        Moved = "301",
        /// For now; most clients follow with GET.
        #[default]
        Found = "302",
        /// For now; clients follow with GET.
        SeeOther = "303",
        /// For now; clients follow with the same method.
        Temporary = "307",
        /// For good; clients follow with the same method.
        Permanent = "308",
    }

    /// Whether Landlock and seccomp confine each role.
    SandboxMode {
        /// With both; Flash does not start if the kernel lacks one.
        Required = "required",
        /// As far as the kernel supports them.
        #[default]
        Auto = "auto",
        /// Without Landlock and seccomp.
        Off = "off",
    }

}

impl RedirectStatus {
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Found => 302,
            Self::Moved => 301,
            Self::SeeOther => 303,
            Self::Temporary => 307,
            Self::Permanent => 308,
        }
    }
}

words! {
    MechanismKind { Epoll = "epoll", Poll = "poll", Select = "select" }
    SendBy { Read = "read", Sendfile = "sendfile", Mmap = "mmap" }
    HelperKind hint number_of_helpers { Processes = "processes", Threads = "threads" }
    LogFormat { Combined = "combined", CombinedHost = "combined_host", Json = "json", Template = "template", Off = "off" }
}

/// `helpers = 4` is often meant as the number of helpers.
fn number_of_helpers(text: &str) -> Option<String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| "set the number of helpers with --helpers-max (FLASH_HELPERS_MAX, `helpers_max`)".to_owned())
}
