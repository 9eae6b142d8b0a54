//! Connections that the worker refuses: the answer, and the report to the operator. Called by the event loop
//! ([`Worker`](crate::Worker)).

use flash_engine::limits::RECEIVE_BYTES;
use flash_engine::{ReportLimit, WhyRefused};
use flash_http::response::ServerField;
use flash_prompt::mechanism::MechanismKind;
use flash_prompt::{AsFd, net};

use crate::REPORT_MS;
use crate::calls::{Call, note_call};

/// The answer to a refused client. It is the same for all, so that a refusal costs no more than its system
/// calls.
const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: flash\r\nContent-Length: 0\r\n\
    Retry-After: 2\r\nConnection: close\r\n\r\n";
const ANSWER_WITHOUT_SERVER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
    Retry-After: 2\r\nConnection: close\r\n\r\n";

/// The answer to refused clients, and the refusals since the last report.
#[derive(Debug)]
pub(crate) struct Refusals {
    answer: &'static [u8],
    /// In the order of [`WhyRefused::ALL`].
    counts: [u64; WhyRefused::ALL.len()],
    limit: ReportLimit,
    mechanism: MechanismKind,
}

impl Refusals {
    pub(crate) fn new(mechanism: MechanismKind, server: ServerField) -> Self {
        let answer = if server == ServerField::Sent { ANSWER } else { ANSWER_WITHOUT_SERVER };
        Self { answer, counts: Default::default(), limit: ReportLimit::default(), mechanism }
    }

    /// Refuses a client; the caller closes its socket.
    pub(crate) fn refuse(&self, socket: impl AsFd) {
        // Unread input would turn the close into a reset, which destroys the answer. Nearly always one call reads all.
        let mut input = [0; 4096];
        for _ in 0..RECEIVE_BYTES / input.len() {
            if !net::recv(&socket, &mut input).is_ok_and(|received| received == input.len()) {
                break;
            }
        }
        // If the client has gone already, the failure does not matter.
        let _ = net::send(&socket, self.answer);
        let _ = net::end_sending(&socket);
        note_call(Call::Send);
    }

    /// Counts a refused client.
    pub(crate) fn add(&mut self, why: WhyRefused) {
        self.counts[why as usize] += 1;
    }

    /// A report for the operator with the most frequent reason, at most once a minute.
    pub(crate) fn report(&mut self, now_ms: u64, connections_open: usize) -> Option<String> {
        let refused: u64 = self.counts.iter().sum();
        if refused == 0 || !self.limit.is_due(now_ms, REPORT_MS) {
            return None;
        }
        let why = WhyRefused::ALL.into_iter().max_by_key(|why| self.counts[*why as usize])?;
        self.counts = Default::default();
        Some(format!("refused {refused} connections with {connections_open} open: {}", self.reason(why)))
    }

    /// The reason, and advice.
    fn reason(&self, why: WhyRefused) -> &'static str {
        match why {
            WhyRefused::Connections | WhyRefused::Descriptors if self.mechanism == MechanismKind::Select => {
                "a limit of connections or descriptors is reached; select cannot watch more descriptors: \
                 use --event-mechanism epoll"
            }
            WhyRefused::Connections | WhyRefused::Descriptors => {
                "a limit of connections or descriptors is reached; \
                 raise --connections or the descriptor limit (ulimit -n)"
            }
            WhyRefused::Client => {
                "one client address has its share of connections; if it is a proxy, name it in --client-exempt, \
                 or raise --client-connections"
            }
            WhyRefused::ProxyHeader => "a proxy of --proxy-protocol did not introduce its client",
            WhyRefused::Overload => {
                "new connections waited longer than --accept-wait: the worker has more to do than it can"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_refused_client_with_a_long_head_reads_its_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        client.write_all(&[b'x'; 30_000]).expect("room");
        let (socket, _) = listener.accept().expect("the client");
        // Loopback delivers in the sender's call, so all of it is here.
        Refusals::new(MechanismKind::Epoll, ServerField::Sent).refuse(&socket);
        drop(socket);
        net::take_error(&client).expect("no reset");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer");
        assert_eq!(answer, ANSWER);
    }

    #[test]
    fn the_report_names_the_most_frequent_reason() {
        let mut refusals = Refusals::new(MechanismKind::Epoll, ServerField::Sent);
        assert_eq!(refusals.report(1_000, 0), None);
        for why in [WhyRefused::Connections, WhyRefused::Client, WhyRefused::Client] {
            refusals.add(why);
        }
        let report = refusals.report(1_000, 7).expect("a report");
        assert!(report.starts_with("refused 3 connections with 7 open: one client address"), "{report}");
        assert_eq!(refusals.report(1_000_000, 0), None, "nothing new");
    }
}
