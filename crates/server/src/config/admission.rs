//! Who gets a connection when there is not room for all: the settings of admission (docs/overload.md).
//!
//! `config::resolve` fills them, `config::combinations` checks them, and `convert` passes them to the engine and the worker.

use std::ffi::OsStr;
use std::fmt;

use flash_engine::{Network, WrongNetwork};
use serde::{Deserialize, Serialize};

use super::error::{NotUtf8, Refusal};
use super::kind::Kind;
use super::values::{Item, ListItem, utf8};

/// Some clients: this machine, those of Unix sockets, or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clients {
    /// The addresses of the loopback interface.
    Loopback,
    /// The clients of Unix sockets, which have no address.
    Unix,
    /// The addresses of a network.
    Network(Network),
}

const LOOPBACK: &str = "loopback";

const UNIX: &str = "unix";

/// The loopback addresses (RFC 6890 section 2.2).
const LOOPBACK_NETWORKS: [&str; 2] = ["127.0.0.0/8", "::1/128"];

impl Clients {
    fn networks(self) -> Vec<Network> {
        match self {
            Clients::Loopback => LOOPBACK_NETWORKS.iter().filter_map(|text| text.parse().ok()).collect(),
            Clients::Unix => vec![Network::UNIX],
            Clients::Network(network) => vec![network],
        }
    }

    pub(crate) fn networks_of(all: &[Self]) -> Vec<Network> {
        all.iter().copied().flat_map(Self::networks).collect()
    }

    fn parse(text: &str) -> Result<Self, WrongNetwork> {
        match text {
            LOOPBACK => Ok(Clients::Loopback),
            UNIX => Ok(Clients::Unix),
            network => network.parse().map(Clients::Network),
        }
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clients::Loopback => f.write_str(LOOPBACK),
            Clients::Unix => f.write_str(UNIX),
            Clients::Network(network) => network.fmt(f),
        }
    }
}

impl Item for Clients {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        Clients::parse(utf8(text)?).map_err(|wrong| {
            let form =
                "must be a network, such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32, or `loopback` or `unix`";
            match wrong {
                WrongNetwork::Form => Refusal::new(form),
                WrongNetwork::Unspecified => Refusal::new("no client has this address").helped(
                    "for all, write `0.0.0.0/0` and `::/0`; for clients of Unix sockets, `unix`".to_owned(),
                ),
                WrongNetwork::BitsBeyondPrefix(meant) => {
                    Refusal::new("the address has bits beyond the prefix")
                        .helped(format!("did you mean `{meant}`?"))
                }
            }
        })
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(self.to_string())
    }
}

impl ListItem for Clients {}

#[cfg(test)]
mod tests {
    use super::super::values::Value;
    use super::*;

    #[test]
    fn clients_are_networks_or_loopback() {
        let read = |texts: &[&str]| {
            let items: Vec<&OsStr> = texts.iter().map(OsStr::new).collect();
            Vec::<Clients>::from_items(&items, Kind::Networks)
        };
        let clients = read(&["loopback", "unix", "10.0.0.0/8", "2001:db8::1"]).expect("four");
        assert_eq!(
            clients.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["loopback", "unix", "10.0.0.0/8", "2001:db8::1/128"]
        );
        let unix = Clients::networks_of(&[Clients::Unix, Clients::Loopback]);
        let is_in =
            |address: &str| unix.iter().any(|network| network.contains(address.parse().expect("an address")));
        assert_eq!(["0.0.0.0", "127.0.0.1", "10.0.0.1"].map(is_in), [true, true, false]);
        assert!(clients.iter().all(|clients| Clients::parse(&clients.to_string()) == Ok(*clients)));
        let networks = Clients::Loopback.networks();
        for address in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            let address = address.parse().expect("an address");
            assert!(networks.iter().any(|network| network.contains(address)), "{address}");
        }
        assert_eq!(read(&[]), Ok(vec![]));
        let refused = read(&["10.0.0.1/8", "10.0.0.0/8", "10.0.0.0/8", "proxy", "0.0.0.0"])
            .expect_err("four are wrong");
        assert_eq!(refused.iter().map(|refusal| refusal.item).collect::<Vec<_>>(), [0, 2, 3, 4]);
        assert_eq!(refused[0].help.as_deref(), Some("did you mean `10.0.0.0/8`?"));
    }
}
