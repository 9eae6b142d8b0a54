//! Where the server listens: addresses, Unix sockets at a path, and sockets of systemd; and the permissions of those at a path.
//!
//! `config::listen_checks` checks them with the other settings, and `supervisor::sockets` makes the sockets.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{NotUtf8, Refusal};
use super::file_path::FilePath;
use super::kind::Kind;
use super::values::{Item, ListItem, address_guess, utf8};

/// Maximum length of the path of a Unix socket in bytes (unix(7)).
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;
pub(super) const UNIX: &str = "unix:";
const SYSTEMD: &str = "systemd:";
/// Maximum length of such a name in bytes (sd_listen_fds(3)).
const NAME_BYTES_MAX: usize = 255;
/// The port of HTTPS, where no address tells another.
const HTTPS_PORT: u16 = 443;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(FilePath),
    /// The sockets that systemd passes on under this name.
    Systemd(String),
}

impl Listen {
    /// The address, of one over TCP.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        if let Listen::Tcp(address) = self { Some(*address) } else { None }
    }

    /// The path of a Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&FilePath> {
        if let Listen::Unix(path) = self { Some(path) } else { None }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "{UNIX}{}", path.display()),
            Listen::Systemd(name) => write!(f, "{SYSTEMD}{name}"),
        }
    }
}

impl Item for Listen {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        if let Some(path) = text.as_bytes().strip_prefix(UNIX.as_bytes()) {
            return unix(path);
        }
        let text = utf8(text)?;
        if let Some(name) = text.strip_prefix(SYSTEMD) {
            return systemd(name);
        }
        text.parse().map(Listen::Tcp).map_err(|_| {
            let help = match text {
                "systemd" => Some("write `systemd:NAME`, with the FileDescriptorName= of the sockets".to_owned()),
                _ if text.starts_with('/') => Some(format!("write `{UNIX}{text}`")),
                _ => address_guess(text).map(|guess| format!("did you mean `{guess}`?")),
            };
            let why = "must be an address and a port, such as 127.0.0.1:8080 or [::1]:8080, or a Unix socket, such as \
                       unix:/run/flash/http.sock";
            Refusal::new(why).helped(help)
        })
    }

    fn to_text(&self, kind: Kind) -> Result<String, NotUtf8> {
        match self {
            Listen::Unix(path) => path.to_path_buf().to_text(kind).map(|path| format!("{UNIX}{path}")),
            other => Ok(other.to_string()),
        }
    }

    fn rebase(&mut self, folder: &Path) {
        if let Listen::Unix(path) = self {
            let mut absolute = path.to_path_buf();
            Item::rebase(&mut absolute, folder);
            *path = absolute.into();
        }
    }
}

fn unix(path: &[u8]) -> Result<Listen, Refusal> {
    match path {
        [] => Err(Refusal::new("a path must follow `unix:`, such as unix:/run/flash/http.sock")),
        [b'@', ..] => {
            let why = "must be a path: a socket with an abstract name has no permissions";
            Err(Refusal::new(why).helped("write `unix:./@...` for a file of this name".to_owned()))
        }
        path if path.contains(&0) => Err(Refusal::new("must not contain a NUL byte")),
        path => Ok(Listen::Unix(PathBuf::from(OsStr::from_bytes(path)).into())),
    }
}

fn systemd(name: &str) -> Result<Listen, Refusal> {
    let is_right = name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b':');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_right {
        let why = format!(
            "must be the FileDescriptorName= of a socket unit after `systemd:`: up to {NAME_BYTES_MAX} characters of \
             ASCII, without a colon"
        );
        return Err(Refusal::new(why));
    }
    Ok(Listen::Systemd(name.to_owned()))
}

impl ListItem for Listen {
    const NONE_REFUSED: Option<&'static str> = Some("name at least one address");

    /// Port 0 takes another free port each time.
    fn may_repeat(&self) -> bool {
        self.address().is_some_and(|address| address.port() == 0)
    }
}

impl FromStr for Listen {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::from_text(OsStr::new(text), Kind::Addresses)
    }
}

/// The permissions of a socket at a path: who can connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketMode(pub u32);

impl Item for SocketMode {
    fn from_text(text: &OsStr, _: Kind) -> Result<Self, Refusal> {
        let text = utf8(text)?;
        let digits = text.strip_prefix('0').filter(|rest| rest.len() == 3).unwrap_or(text);
        let is_octal = digits.len() == 3 && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if is_octal => Ok(Self(mode)),
            _ => Err(Refusal::new("must be three octal digits, such as 0660 or 0666")),
        }
    }

    fn to_text(&self, _: Kind) -> Result<String, NotUtf8> {
        Ok(format!("{:04o}", self.0))
    }
}

/// The port for HTTPS that redirects name: that of the first address. Proxies in front of Unix sockets have the usual one.
pub(crate) fn https_port(listen: &[Listen]) -> Option<u16> {
    let port = listen.iter().find_map(Listen::address).map_or(HTTPS_PORT, |address| address.port());
    (!listen.is_empty()).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::super::values::Value;
    use super::*;

    fn why(text: &str) -> String {
        let refusal = text.parse::<Listen>().expect_err(text);
        format!("{} {}", refusal.why, refusal.help.unwrap_or_default())
    }

    #[test]
    fn places_are_addresses_paths_and_names() {
        for text in [
            "127.0.0.1:80",
            "[::1]:0",
            "unix:/run/flash/http.sock",
            "unix:here",
            "systemd:http",
            "systemd:a b",
        ] {
            let listen: Listen = text.parse().expect(text);
            assert_eq!(listen.to_string(), text);
            assert_eq!(listen.to_text(Kind::Addresses), Ok(text.to_owned()));
        }
        let mut here: Listen = "unix:./here".parse().expect("a path");
        Item::rebase(&mut here, Path::new("/run/flash"));
        assert_eq!(here.to_string(), "unix:/run/flash/here");
        let odd = OsStr::from_bytes(b"unix:/run/\xff");
        let odd = Listen::from_text(odd, Kind::Addresses).expect("a path");
        assert!(odd.to_text(Kind::Addresses).is_err());
    }

    #[test]
    fn other_texts_are_refused_with_help() {
        for (text, part) in [
            ("unix:", "a path must follow"),
            ("unix:@flash", "abstract name has no permissions"),
            ("unix:a\0b", "NUL"),
            ("/run/x", "write `unix:/run/x`"),
            ("systemd", "write `systemd:NAME`"),
            ("systemd:", "FileDescriptorName="),
            ("systemd:a:b", "without a colon"),
            ("systemd:ä", "ASCII"),
            (":80", "did you mean `127.0.0.1:80`?"),
            ("http", "unix:/run/flash/http.sock"),
        ] {
            assert!(why(text).contains(part), "{text}: {}", why(text));
        }
        assert!(why(&format!("systemd:{}", "a".repeat(256))).contains("255"));
        let items = ["unix:/a", "unix:/a", "127.0.0.1:0", "127.0.0.1:0"].map(OsStr::new);
        let refusals = Vec::<Listen>::from_items(&items, Kind::Addresses).expect_err("twice");
        assert_eq!(refusals.iter().map(|refusal| refusal.item).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn permissions_are_octal() {
        let read =
            |text: &str| SocketMode::from_text(OsStr::new(text), Kind::Permissions).ok().map(|mode| mode.0);
        assert_eq!(
            ["0660", "666", "0000", "777"].map(read),
            [Some(0o660), Some(0o666), Some(0), Some(0o777)]
        );
        for wrong in ["", "7", "0888", "1777", "00660", "0o660", "+66", "rw-rw----"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(SocketMode(0o60).to_text(Kind::Permissions), Ok("0060".to_owned()));
    }

    #[test]
    fn redirects_name_the_port_of_an_address() {
        let port = |texts: &[&str]| {
            let listen: Vec<Listen> = texts.iter().map(|text| text.parse().expect(text)).collect();
            https_port(&listen)
        };
        assert_eq!(port(&[]), None);
        assert_eq!(port(&["unix:/a", "127.0.0.1:8443", "127.0.0.1:9443"]), Some(8443));
        assert_eq!(port(&["unix:/a", "systemd:https"]), Some(443));
    }
}
