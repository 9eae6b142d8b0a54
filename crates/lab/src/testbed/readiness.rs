//! Checks whether a server answers yet.
//!
//! [`super::running`] repeats the check until it does. It must not measure anything.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use flash_load::tls::{Client, ClientOptions};

/// How long one check may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How to reach the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadinessCheck {
    pub(super) address: SocketAddr,
    pub(super) is_https: bool,
}

impl ReadinessCheck {
    pub(super) fn in_clear(address: SocketAddrV4) -> Self {
        Self { address: address.into(), is_https: false }
    }

    /// Whether there is an answer: any HTTP response, or without a path a connection.
    pub(super) fn run(self, path: Option<&str>) -> Result<(), String> {
        let text = |why: std::io::Error| why.to_string();
        let socket = TcpStream::connect_timeout(&self.address, PATIENCE).map_err(text)?;
        let Some(path) = path else { return Ok(()) };
        socket.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(text)?;
        let host = self.address.to_string();
        let is_http = if self.is_https {
            let client =
                Client::new(&ClientOptions::default(), b"http/1.1").map_err(|why| why.to_string())?;
            is_http(client.wrap(&host, socket).map_err(text)?, &host, path)
        } else {
            is_http(socket, &host, path)
        };
        if is_http.map_err(text)? { Ok(()) } else { Err("its answer is not HTTP".to_owned()) }
    }
}

/// Requests a path; whether the answer is one of HTTP.
fn is_http(mut stream: impl Read + Write, host: &str, path: &str) -> std::io::Result<bool> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    // "HTTP/1.1 200": whatever the status is, somebody is there who speaks HTTP.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(head.starts_with(b"HTTP/1.") && head[9..].iter().all(u8::is_ascii_digit))
}
