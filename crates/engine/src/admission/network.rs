//! A range of client addresses, as an operator writes it: `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`. Read by
//! the configuration, asked by [`OpenConnections`](super::OpenConnections).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use flash_http::client;
use serde::{Deserialize, Serialize};

/// An address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its bits beyond the prefix are zero.
    address: IpAddr,
    prefix_bits: u32,
}

/// Why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongNetwork {
    /// It has no address, or no valid prefix.
    Form,
    /// The address has bits beyond the prefix; this is the network that it belongs to.
    BitsBeyondPrefix(Network),
    /// It is the unspecified address alone, which no client has.
    Unspecified,
}

impl Network {
    /// The clients of Unix sockets. No text is read as this network, and no other one contains them.
    pub const UNIX: Network = Network { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_bits: u32::BITS };

    /// Whether the address is in the network. An IPv4 address that is mapped to IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        first_bits(address.to_canonical(), self.prefix_bits) == Some(self.address)
            && (!client::is_unix(address) || *self == Self::UNIX)
    }
}

/// The address with zeros beyond its first bits. None if it has fewer bits.
fn first_bits(address: IpAddr, bits: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(ip) => {
            let beyond = u32::BITS.checked_sub(bits)?;
            Some(IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(beyond).unwrap_or(0)).into()))
        }
        IpAddr::V6(ip) => {
            let beyond = u128::BITS.checked_sub(bits)?;
            Some(IpAddr::V6((ip.to_bits() & u128::MAX.checked_shl(beyond).unwrap_or(0)).into()))
        }
    }
}

fn all_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { u32::BITS } else { u128::BITS }
}

impl FromStr for Network {
    type Err = WrongNetwork;

    /// Reads an address with or without `/PREFIX`.
    fn from_str(text: &str) -> Result<Self, WrongNetwork> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, prefix)| (a, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| WrongNetwork::Form)?;
        let prefix_bits = match prefix {
            None => all_bits(address),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| WrongNetwork::Form)?
            }
            Some(_) => return Err(WrongNetwork::Form),
        };
        let first = first_bits(address, prefix_bits).ok_or(WrongNetwork::Form)?;
        let network = Network { address: first, prefix_bits };
        if client::is_unix(first) && prefix_bits == all_bits(first) {
            return Err(WrongNetwork::Unspecified);
        }
        if first == address { Ok(network) } else { Err(WrongNetwork::BitsBeyondPrefix(network)) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let contains = |network: &str, address: &str| {
            let network: Network = network.parse().expect("a network");
            assert_eq!(network.to_string().parse(), Ok(network));
            network.contains(address.parse().expect("an address"))
        };
        assert!(contains("127.0.0.0/8", "127.255.0.1"));
        assert!(!contains("127.0.0.0/8", "128.0.0.1"));
        assert!(contains("192.0.2.7", "::ffff:192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::1"));
        assert!(contains("::1", "::1"));
        assert!(contains("::/0", "::1") && !contains("::/0", "127.0.0.1"));
    }

    #[test]
    fn clients_of_unix_sockets_are_in_their_own_network_alone() {
        let unix = "0.0.0.0".parse().expect("an address");
        assert!(Network::UNIX.contains(unix));
        assert!(!Network::UNIX.contains("0.0.0.1".parse().expect("an address")));
        for all in ["0.0.0.0/0", "0.0.0.0/8", "::/0", "::/127"] {
            assert!(!all.parse::<Network>().expect("a network").contains(unix), "{all}");
        }
        for one in ["0.0.0.0", "0.0.0.0/32", "::", "::/128"] {
            assert_eq!(one.parse::<Network>(), Err(WrongNetwork::Unspecified), "{one}");
        }
    }

    #[test]
    fn other_texts_are_no_networks() {
        for text in
            ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "/8"]
        {
            assert_eq!(text.parse::<Network>(), Err(WrongNetwork::Form), "{text}");
        }
        let meant = "10.0.0.0/8".parse().expect("a network");
        assert_eq!("10.1.2.3/8".parse::<Network>(), Err(WrongNetwork::BitsBeyondPrefix(meant)));
    }
}
