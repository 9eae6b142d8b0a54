//! The settings of the warm endpoint of `flash backend`: where it listens, and for which files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use flash_worker::backend::EndpointProtocol;
use serde::{Deserialize, Serialize};

use super::error::Problem;
use super::file_path::FilePath;

/// A Unix socket of the warm endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSocket {
    /// Its protocol.
    pub protocol: EndpointProtocol,
    /// Its absolute path.
    pub path: FilePath,
}

/// The settings of the warm endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSettings {
    /// Its Unix sockets.
    pub sockets: Vec<EndpointSocket>,
    /// The directories whose files can be asked for.
    pub roots: Vec<FilePath>,
}

/// The options of the warm endpoint, as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointOptions {
    /// Addresses for HTTP: `HOST:PORT` or `unix:PATH`.
    pub http: Vec<String>,
    /// Sockets for FastCGI: `unix:PATH`.
    pub fastcgi: Vec<String>,
    /// Directories whose files can be asked for.
    pub roots: Vec<PathBuf>,
}

impl EndpointOptions {
    /// The settings, and the addresses for HTTP over TCP.
    pub(super) fn resolve(&self, cwd: &Path) -> Result<(EndpointSettings, Vec<SocketAddr>), Vec<Problem>> {
        let (mut settings, mut addresses, mut problems) =
            (EndpointSettings::default(), Vec::new(), Vec::new());
        let mut refuse = |what: String, why: &str| problems.push(Problem::plain(what, why.to_owned()));
        for (protocol, flag, text) in (self.http.iter().map(|text| (EndpointProtocol::Http, "--warm", text)))
            .chain(self.fastcgi.iter().map(|text| (EndpointProtocol::FastCgi, "--fastcgi", text)))
        {
            match (text.strip_prefix("unix:"), protocol) {
                (Some(""), _) => refuse(format!("`{flag} {text}`"), "a path must follow unix:"),
                (Some(path), _) => {
                    settings.sockets.push(EndpointSocket { protocol, path: cwd.join(path).into() });
                }
                (None, EndpointProtocol::FastCgi) => refuse(format!("`{flag} {text}`"), "give unix:PATH"),
                (None, EndpointProtocol::Http) => match text.parse() {
                    Ok(address) => addresses.push(address),
                    Err(_) => refuse(
                        format!("`{flag} {text}`"),
                        "give unix:PATH, or an IP address with a port such as 127.0.0.1:8081",
                    ),
                },
            }
        }
        let has_endpoint = !(self.http.is_empty() && self.fastcgi.is_empty());
        match (has_endpoint, self.roots.is_empty()) {
            (true, true) => refuse(
                "--warm and --fastcgi need --warm-root".to_owned(),
                "name the directories that the server serves; only files beneath them can be asked for",
            ),
            (false, false) => refuse(
                "--warm-root has no effect".to_owned(),
                "give --warm or --fastcgi too, or leave it out",
            ),
            _ => {}
        }
        settings.roots = self.roots.iter().map(|root| cwd.join(root).into()).collect();
        if problems.is_empty() { Ok((settings, addresses)) } else { Err(problems) }
    }
}

#[cfg(test)]
impl EndpointSettings {
    /// Settings with every field filled.
    pub(super) fn sample() -> Self {
        use std::ffi::OsString;
        use std::os::unix::ffi::OsStringExt;

        let odd = FilePath::from(OsString::from_vec(b"/srv/\xff".to_vec()));
        let sockets = vec![EndpointSocket { protocol: EndpointProtocol::FastCgi, path: odd.clone() }];
        Self { sockets, roots: vec![odd, "/srv/www".into()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(http: &[&str], fastcgi: &[&str], roots: &[&str]) -> EndpointOptions {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        EndpointOptions {
            http: texts(http),
            fastcgi: texts(fastcgi),
            roots: roots.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn addresses_and_paths() {
        let given =
            options(&["127.0.0.1:8081", "unix:w.sock", "[::1]:0"], &["unix:/run/f"], &["www", "/srv"]);
        let (settings, addresses) = given.resolve(Path::new("/cwd")).expect("right");
        assert_eq!(addresses, ["127.0.0.1:8081", "[::1]:0"].map(|text| text.parse().expect("an address")));
        let sockets: Vec<_> =
            settings.sockets.iter().map(|socket| (socket.protocol, socket.path.to_str())).collect();
        assert_eq!(
            sockets,
            [(EndpointProtocol::Http, Some("/cwd/w.sock")), (EndpointProtocol::FastCgi, Some("/run/f"))]
        );
        let roots: Vec<_> = settings.roots.iter().map(|root| root.to_str()).collect();
        assert_eq!(roots, [Some("/cwd/www"), Some("/srv")]);
        assert!(options(&[], &[], &[]).resolve(Path::new("/")).is_ok());
    }

    #[test]
    fn wrong_options_are_refused() {
        for wrong in [
            options(&["unix:"], &[], &["/"]),
            options(&["localhost"], &[], &["/"]),
            options(&[], &["127.0.0.1:9000"], &["/"]),
            options(&["unix:/a"], &[], &[]),
            options(&[], &["unix:/a"], &[]),
            options(&[], &[], &["/"]),
        ] {
            assert_eq!(wrong.resolve(Path::new("/")).expect_err("wrong").len(), 1, "{wrong:?}");
        }
    }
}
