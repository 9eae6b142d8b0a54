//! The wire of a run: the version of HTTP, and TLS.
//!
//! A [`super::Driver`] makes one of its options, and gives it to all requests. Pure, except that it reads the file of
//! authorities.

use flash_kit::{Error, Result};
use flash_load::generator::{Protocol, STREAMS_PER_CONNECTION_MAX};
use flash_load::target::Target;
use flash_load::tls;

/// Requests at once on a connection: as many as browsers send.
const STREAMS: u32 = 100;

/// The options of the wire. Comments of options are their help.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
// The options that these are flattened into have this name, too.
#[group(skip)]
#[command(next_help_heading = "Wire")]
pub struct Options {
    /// Send requests by HTTP/2: over TLS by ALPN, otherwise by prior knowledge
    #[arg(long)]
    pub http2: bool,

    /// Maximum requests at once on a connection of HTTP/2
    #[arg(long = "streams", value_name = "N", default_value_t = STREAMS, requires = "http2")]
    pub streams_max: u32,

    #[command(flatten)]
    pub tls: tls::ClientOptions,
}

#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) protocol: Protocol,
    /// For servers that speak TLS.
    client: tls::Client,
}

impl Wire {
    /// Errors: usage, for streams out of range or authorities that are none; run, for a file that cannot be read.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let streams_max = options.streams_max;
        if streams_max == 0 || streams_max > STREAMS_PER_CONNECTION_MAX {
            return Err(Error::usage(format!(
                "{streams_max} streams: 1 to {STREAMS_PER_CONNECTION_MAX} are possible on a connection"
            )));
        }
        let (protocol, name): (Protocol, &[u8]) = if options.http2 {
            (Protocol::Http2 { streams_max }, b"h2")
        } else {
            (Protocol::Http1, b"http/1.1")
        };
        Ok(Self { protocol, client: tls::Client::new(&options.tls, name)? })
    }

    /// The TLS of requests to a server; none if it speaks none.
    pub(crate) fn tls(&self, target: &Target) -> Option<tls::Client> {
        target.is_https.then(|| self.client.clone())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { http2: false, streams_max: STREAMS, tls: tls::ClientOptions::default() }
    }
}

impl Options {
    /// Names the parts of the wire, with their values in words, for the settings of results.
    pub(super) fn describe(&self, mut set: impl FnMut(&str, String)) {
        let version = match self.http2 {
            true => format!("HTTP/2, at most {} requests at once on a connection", self.streams_max),
            false => "HTTP/1.1".to_owned(),
        };
        set("wire", version);
        set("TLS of https", self.tls.text());
    }
}
