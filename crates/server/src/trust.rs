//! Reads the certificates of issuers by which the servers of routes are verified. Called before processes start, where a disk may
//! be waited for (`supervisor/prepare.rs`), and by `flash check`.

use std::path::{Path, PathBuf};

use flash_engine::{ServerId, UpstreamId};
use flash_tls::{Trust, TrustedServer, check_roots};

use crate::certificates::content;
use crate::config::{RouteTls, ServerAddress, Settings};

/// Where systems keep the certificates of the issuers that they trust: Debian, Fedora, openSUSE, Alpine and the BSDs.
const OF_SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The files of `roots` that these settings name.
pub(crate) fn files(settings: &Settings) -> Vec<PathBuf> {
    let verified = settings.routes().filter_map(|route| route.tls.as_ref()).filter(|tls| tls.verify);
    let mut files: Vec<PathBuf> = verified.filter_map(|tls| tls.roots.clone()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Whether these settings have servers over TLS, so that workers and the gateway get an order about them.
pub(crate) fn is_needed(settings: &Settings) -> bool {
    settings.routes().any(|route| route.tls.is_some())
}

/// Reads the files that the servers of these settings need. None without servers over TLS.
///
/// # Errors
/// Why one of them cannot be used.
pub(crate) fn read(settings: &Settings) -> Result<Option<Trust>, String> {
    if !is_needed(settings) {
        return Ok(None);
    }
    let (mut trust, mut paths) = (Trust::default(), Vec::new());
    for (upstream, route) in (0..).map(UpstreamId).zip(settings.routes()) {
        let Some(tls) = &route.tls else { continue };
        let roots = if tls.verify { Some(place_of(tls, &mut trust, &mut paths)?) } else { None };
        for (server, address) in (0..).zip(&route.servers) {
            if let ServerAddress::Tls(address) = address {
                let trusted = TrustedServer { name: tls.name_of(address), roots };
                trust.servers.insert(ServerId { upstream, server }, trusted);
            }
        }
    }
    Ok(Some(trust))
}

/// The place of the certificates that a route trusts. `paths` are those of the files read until now.
fn place_of(tls: &RouteTls, trust: &mut Trust, paths: &mut Vec<PathBuf>) -> Result<usize, String> {
    let path = match &tls.roots {
        Some(path) => path.clone(),
        None => of_system(&OF_SYSTEM.map(Path::new))?,
    };
    if let Some(place) = paths.iter().position(|known| *known == path) {
        return Ok(place);
    }
    let pem = content(&path, false)?;
    check_roots(&pem).map_err(|wrong| format!("cannot use `{}` as `roots`: {wrong}", path.display()))?;
    trust.roots.push(pem);
    paths.push(path);
    Ok(paths.len() - 1)
}

/// The first of these files that is there.
fn of_system(paths: &[&Path]) -> Result<PathBuf, String> {
    let found = paths.iter().find(|path| path.is_file());
    found.map(|path| path.to_path_buf()).ok_or_else(|| {
        let all: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        format!(
            "a route has servers over TLS, but this system has no file of trusted certificates ({}): install its package \
             `ca-certificates`, or set `roots` in the route",
            all.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_trusted_certificates_is_told_what_to_do() {
        let missing = Path::new("/none/ca.crt");
        let why = of_system(&[missing]).expect_err("no file");
        assert!(why.contains("/none/ca.crt") && why.contains("set `roots`"), "{why}");
        assert_eq!(of_system(&[missing, Path::new("/proc/self/exe")]), Ok("/proc/self/exe".into()));
    }
}
