//! Why a connection to a server failed, for the operator: the reason, and what to do. Called by [`records`](crate::records).

use rustls::{AlertDescription, CertificateError, Error};

use crate::certificate::date;

/// The reason for a failure, and what to do.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate(why),
        Error::NoCertificatesPresented => "the server has no certificate".to_owned(),
        Error::InvalidMessage(_) => {
            "the server does not speak TLS on this port; write its address without `https://`, or correct the port".to_owned()
        }
        Error::PeerIncompatible(_) => {
            format!("{error}; the server must speak TLS 1.2 or 1.3 with a cipher that keeps earlier sessions secret (ECDHE)")
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the server does not know this name; set `server_name` to one of its names".to_owned()
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure) => {
            "the server refuses it; it must speak TLS 1.2 or 1.3 with a cipher that keeps earlier sessions secret (ECDHE)"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants a certificate of its client, and Flash has none".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the server does not speak HTTP/1.1 on this port".to_owned()
        }
        Error::AlertReceived(alert) => format!("the server refuses it ({alert:?}); its log may say why"),
        other => other.to_string(),
    }
}

/// The name in a text such as `DnsName("backend.example")` or `IpAddress(10.0.0.1)`.
fn bare(name: &str) -> &str {
    let Some((_, rest)) = name.split_once('(') else { return name };
    rest.strip_suffix(')').unwrap_or(rest).trim_matches('"')
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            let until = date(i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX));
            format!("the certificate of the server expired on {until}; renew it there")
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let from = date(i64::try_from(not_before.as_secs()).unwrap_or(i64::MAX));
            format!("the certificate of the server is not valid before {from}; correct the clocks of both")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            let expected = expected.to_str();
            format!(
                "the certificate of the server is for {names}, not for {expected}; set `server_name` to its name"
            )
        }
        CertificateError::UnknownIssuer => {
            "the issuer of the server's certificate is not trusted; set `roots` to a file with the issuer's certificate, or with \
             the server's own"
                .to_owned()
        }
        CertificateError::BadEncoding => "the certificate of the server is malformed".to_owned(),
        // `webpki` has this error, and `rustls` shows it in no other way.
        CertificateError::Other(_) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            "the server's certificate has signed itself or others, and is not trusted; set `roots` to a file with it".to_owned()
        }
        other => format!("the certificate of the server cannot be verified: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_bare() {
        for name in ["DnsName(\"a.example\")", "a.example", "IpAddress(a.example)"] {
            assert_eq!(bare(name), "a.example");
        }
    }
}
