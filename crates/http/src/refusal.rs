//! The reasons for which input is refused. One sentence serves the documentation, the log and the client.

/// Declares the reasons: an enum, with the status to answer with and a sentence without its full stop.
macro_rules! refusals {
    ($(#[$about:meta])* $name:ident { $($variant:ident $status:ident $reason:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $(
                #[doc = concat!($reason, ".")]
                $variant,
            )*
        }

        impl $name {
            /// The status to answer with.
            pub fn status(&self) -> $crate::response::Status {
                match self {
                    $(Self::$variant => $crate::response::Status::$status,)*
                }
            }

            /// A short text for the client or the log: a sentence without its full stop.
            pub fn reason(&self) -> &'static str {
                match self {
                    $(Self::$variant => $reason,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.reason())
            }
        }

        impl std::error::Error for $name {}
    };
}

pub(crate) use refusals;
