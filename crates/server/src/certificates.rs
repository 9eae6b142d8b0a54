//! Reads and checks the files of certificates. Called before processes start, where a disk may be waited for
//! (`supervisor/prepare.rs`), and by `flash check`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flash_tls::{Bundle, Carried, Certificate, Pair, SiteCertificates, date};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::config::{Settings, Site};
use crate::stats::CertificateStats;

const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long before its end the operator is warned of a certificate.
const WARNING_S: i64 = 14 * 86_400;
const COUNTED_MAX: usize = 256;
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

/// The certificates of all sites: for the workers, with their keys, and when they expire.
pub(crate) type ReadCertificates = (Zeroizing<Vec<u8>>, Vec<Expiry>);

/// When a certificate expires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Expiry {
    /// Its file, for people.
    pub(crate) file: String,
    /// The last second in which it is valid, since 1970.
    pub(crate) until_s: i64,
}

impl Expiry {
    /// A warning, if it expires soon or has expired.
    pub(crate) fn warning(&self) -> Option<String> {
        let (Self { file, until_s }, left_s) = (self, self.until_s - now_s());
        let date = date(*until_s);
        match left_s {
            ..0 => Some(format!("the certificate `{file}` expired on {date}")),
            0..WARNING_S => {
                Some(format!("the certificate `{file}` expires on {date}, in {} days", left_s / 86_400))
            }
            _ => None,
        }
    }
}

/// How long certificates are still valid, for statistics: those that expire first.
pub(crate) fn stats(expiries: &[Expiry]) -> Vec<CertificateStats> {
    let mut first: Vec<&Expiry> = expiries.iter().collect();
    first.sort_by_key(|expiry| expiry.until_s);
    first.truncate(COUNTED_MAX);
    let now_s = now_s();
    let stats = |Expiry { file, until_s }: &Expiry| CertificateStats {
        file: file.clone(),
        until_s: *until_s,
        left_s: until_s - now_s,
    };
    first.into_iter().map(stats).collect()
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// The files of certificates that these settings name and that are in use.
pub(crate) fn files(settings: &Settings) -> Vec<PathBuf> {
    if settings.tls_listen.is_empty() {
        return Vec::new();
    }
    let of_site =
        |site: &Site| [&site.certificates, &site.certificate_keys, &site.ocsp].map(Clone::clone).concat();
    let files = settings.sites.iter().flat_map(of_site);
    let mut files: Vec<PathBuf> = files.map(|path| path.to_path_buf()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Reads the certificates of these settings. None without addresses for TLS.
///
/// # Errors
/// Why one of them cannot be used.
pub(crate) fn read(settings: &Settings) -> Result<Option<ReadCertificates>, String> {
    if settings.tls_listen.is_empty() {
        return Ok(None);
    }
    let (mut bundle, mut expiries) = (Bundle::default(), Vec::new());
    for site in &settings.sites {
        let pairs = pairs(site, &mut expiries)?;
        if !pairs.is_empty() {
            bundle.0.push(SiteCertificates { hosts: site.hosts.clone(), pairs });
        }
    }
    if bundle.0.is_empty() {
        return Err("listen_tls needs a certificate: set certificate and certificate_key, or make one for trying out with `flash \
                    tls self-signed`"
            .to_owned());
    }
    expiries.sort_unstable();
    expiries.dedup();
    Ok(Some((Zeroizing::new(bundle.to_bytes()), expiries)))
}

fn pairs(site: &Site, expiries: &mut Vec<Expiry>) -> Result<Vec<Pair>, String> {
    let (certificates, keys) = (&site.certificates, &site.certificate_keys);
    if certificates.len() != keys.len() || site.ocsp.len() > keys.len() {
        let of = site.hosts.first().map_or(String::new(), |host| format!(" of `{host}`"));
        return Err(format!(
            "certificate{of} has {} files and certificate_key {}: each certificate needs its key, in the same order, and ocsp at most one \
             file for each",
            certificates.len(),
            keys.len()
        ));
    }
    let mut pairs = Vec::new();
    for (number, (certificate, key)) in certificates.iter().zip(keys).enumerate() {
        let ocsp = site.ocsp.get(number).map(|path| content(path, false)).transpose()?;
        let pair = Pair { certificate: content(certificate, false)?, key: content(key, true)?, ocsp };
        let Certificate { until_s, .. } = pair.check(now_s()).map_err(|wrong| {
            let file = if wrong.is_of_key() { key } else { certificate };
            format!("cannot use `{}`: {wrong}", file.display())
        })?;
        expiries.push(Expiry { file: certificate.display().to_string(), until_s });
        pairs.push(pair);
    }
    Ok(pairs)
}

/// The content of a file. A key must not be readable by everybody.
pub(crate) fn content(path: &Path, is_key: bool) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("cannot read `{}`: {}", path.display(), e.kind());
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if is_key && found.permissions().mode() & OTHERS != 0 {
        return Err(format!(
            "cannot use `{}`: every user of this machine can reach this key; run `chmod o= {0}`",
            path.display()
        ));
    }
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err(format!("cannot use `{}`: it is not a file of at most 1 MiB", path.display()));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
