//! A worker's end of the channel to the gateway, which connects to the servers of routes for it. Called by
//! [`system`](crate::system) and the worker's loop. It must not wait for the gateway.
//!
//! If the gateway dies, the next one is asked for everything that it has not answered, so that no request fails. The engine bounds how
//! long a request waits.

use std::collections::BTreeMap;
use std::io;

use flash_engine::{Key, ServerId};
use flash_prompt::epoll::Watch;
use flash_prompt::mechanism::Mechanism;
use flash_prompt::{OwnedFd, channel, net};

use super::calls::{Call, note_call};
use crate::codec::{decode, send};
use crate::gateway_protocol::{Connect, GATEWAY_MESSAGE_BYTES_MAX, GatewayReply};

/// Answers taken from the gateway before other events have their turn.
const ANSWERS_PER_TURN_MAX: usize = 64;

/// A connection that was asked for, or the reason why it was not made.
pub(super) type LinkResult = (Key, io::Result<OwnedFd>);

/// A message of the gateway.
#[derive(Debug)]
pub(super) enum GatewayEvent {
    /// A connection, or the reason why there is none.
    Link(LinkResult),
    /// Whether a server is up, by its probes.
    Probed(ServerId, bool),
}

/// The channel to the gateway, and the connections asked for.
#[derive(Debug, Default)]
pub(super) struct GatewayChannel {
    channel: Option<OwnedFd>,
    /// How many channels there have been.
    channels: u64,
    /// The numbers of the connections that no gateway has answered for, and their servers.
    asked: BTreeMap<u64, ServerId>,
    /// Connections that were not made, for the end of the turn.
    failed: Vec<LinkResult>,
}

impl GatewayChannel {
    /// The end of `channel`, if there is a gateway.
    pub(super) fn to(channel: Option<OwnedFd>, events: &mut Mechanism, token: fn(u64) -> u64) -> Self {
        let mut gateway = Self::default();
        if let Some(channel) = channel {
            gateway.connect(events, token, channel);
        }
        gateway
    }

    /// Takes the channel to a gateway. An earlier one, which has gone, no longer answers. `token` makes an event
    /// token from the channel's number.
    pub(super) fn connect(&mut self, events: &mut Mechanism, token: fn(u64) -> u64, channel: OwnedFd) {
        self.channels += 1;
        let watched = channel::set_nonblocking(&channel)
            .and_then(|()| events.add(&channel, token(self.channels), Watch::Input));
        self.channel = watched.is_ok().then_some(channel);
        for (link, server) in std::mem::take(&mut self.asked) {
            self.ask(Key::from_u64(link), server);
        }
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.channel.is_some() && number == self.channels
    }

    /// Asks for a connection, once there is a gateway.
    pub(super) fn ask(&mut self, link: Key, server: ServerId) {
        if let Some(channel) = &self.channel {
            let sent = send(channel, &Connect { link: link.to_u64(), server }, &[]);
            note_call(Call::Message);
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return self.failed.push((link, Err(e))),
                Err(_) => self.channel = None,
                Ok(()) => {}
            }
        }
        self.asked.insert(link.to_u64(), server);
    }

    /// Receives answers and the results of probes.
    pub(super) fn receive(&mut self) -> Vec<GatewayEvent> {
        let mut events = Vec::new();
        while let Some(channel) = &self.channel
            && events.len() < ANSWERS_PER_TURN_MAX
        {
            let (mut bytes, mut descriptors) = ([0; GATEWAY_MESSAGE_BYTES_MAX], Vec::new());
            let received = channel::recv_reported(channel, &mut bytes, &mut descriptors);
            note_call(Call::Message);
            let answer = match received {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => None,
                Ok(received) => decode(&bytes[..received.bytes]),
            };
            let (link, result) = match answer {
                None => {
                    // The gateway has gone, and another one will come.
                    self.channel = None;
                    break;
                }
                Some(GatewayReply::Connected { link }) => {
                    (link, descriptors.pop().ok_or_else(|| io::Error::other("no descriptor is left")))
                }
                Some(GatewayReply::NotConnected { link, errno }) => (link, Err(not_connected(errno))),
                Some(GatewayReply::Probed { server, is_up }) => {
                    events.push(GatewayEvent::Probed(server, is_up));
                    continue;
                }
            };
            if self.asked.remove(&link).is_some() {
                events.push(GatewayEvent::Link((Key::from_u64(link), result)));
            }
        }
        events
    }

    /// Whether connections were not made.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Takes the connections that were not made.
    pub(super) fn take_failed(&mut self) -> Vec<LinkResult> {
        std::mem::take(&mut self.failed)
    }
}

/// The reason why a connection was not made. A shortage of this machine has no number, which to the engine means that the
/// server is not at fault.
fn not_connected(errno: i32) -> io::Error {
    let why = io::Error::from_raw_os_error(errno);
    if net::is_shortage(&why) { io::Error::other(why) } else { why }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use flash_engine::UpstreamId;
    use flash_prompt::mechanism::MechanismKind;

    use super::*;

    const BYTES: usize = 8 * 1024;
    const SERVER: ServerId = ServerId { upstream: UpstreamId(3), server: 4 };

    fn connected() -> (GatewayChannel, Mechanism, OwnedFd) {
        let mut events = Mechanism::new(MechanismKind::Epoll, 4).expect("an epoll");
        let (ours, theirs) = channel::pair(BYTES).expect("a pair");
        channel::set_nonblocking(&theirs).expect("set");
        let gateway = GatewayChannel::to(Some(ours), &mut events, |number| number);
        (gateway, events, theirs)
    }

    fn kinds(made: Vec<LinkResult>) -> Vec<(u64, Option<io::ErrorKind>)> {
        made.into_iter().map(|(link, result)| (link.to_u64(), result.err().map(|e| e.kind()))).collect()
    }

    fn made(events: Vec<GatewayEvent>) -> Vec<LinkResult> {
        let made = |event| match event {
            GatewayEvent::Link(made) => made,
            GatewayEvent::Probed(..) => panic!("{event:?}"),
        };
        events.into_iter().map(made).collect()
    }

    fn answer(theirs: &OwnedFd, answer: GatewayReply, descriptor: Option<&OwnedFd>) {
        let descriptors: Vec<_> = descriptor.into_iter().map(flash_prompt::AsFd::as_fd).collect();
        send(theirs, &answer, &descriptors).expect("sent");
    }

    #[test]
    fn each_connection_asked_for_has_one_answer() {
        let (mut gateway, _events, theirs) = connected();
        (1..=4).for_each(|link| gateway.ask(Key::from_u64(link), SERVER));
        let mut bytes = [0; GATEWAY_MESSAGE_BYTES_MAX];
        let length = channel::recv(&theirs, &mut bytes, &mut Vec::new()).expect("a message");
        assert_eq!(decode(&bytes[..length]), Some(Connect { link: 1, server: SERVER }));
        // ECONNREFUSED.
        answer(&theirs, GatewayReply::NotConnected { link: 1, errno: 111 }, None);
        answer(&theirs, GatewayReply::Connected { link: 2 }, Some(&theirs));
        answer(&theirs, GatewayReply::Connected { link: 3 }, None);
        // EADDRNOTAVAIL.
        answer(&theirs, GatewayReply::NotConnected { link: 4, errno: 99 }, None);
        for never_asked in [2, 9] {
            answer(&theirs, GatewayReply::Connected { link: never_asked }, Some(&theirs));
        }
        let expected = [
            (1, Some(io::ErrorKind::ConnectionRefused)),
            (2, None),
            (3, Some(io::ErrorKind::Other)),
            (4, Some(io::ErrorKind::Other)),
        ];
        let events = made(gateway.receive());
        let numbers =
            events.iter().map(|(_, result)| result.as_ref().err().and_then(io::Error::raw_os_error));
        assert_eq!(numbers.collect::<Vec<_>>(), [Some(111), None, None, None], "a shortage has no number");
        assert_eq!(kinds(events), expected);
        assert!(!gateway.has_failed());
    }

    #[test]
    fn results_of_probes_come_between_answers() {
        let (mut gateway, _events, theirs) = connected();
        gateway.ask(Key::from_u64(1), SERVER);
        answer(&theirs, GatewayReply::Probed { server: SERVER, is_up: false }, None);
        answer(&theirs, GatewayReply::NotConnected { link: 1, errno: 111 }, None);
        answer(&theirs, GatewayReply::Probed { server: SERVER, is_up: true }, None);
        let events = gateway.receive();
        let [GatewayEvent::Probed(SERVER, false), GatewayEvent::Link(_), GatewayEvent::Probed(SERVER, true)] =
            events[..]
        else {
            panic!("{events:?}")
        };
    }

    /// The connections that a gateway was asked for.
    fn asked(theirs: &OwnedFd) -> Vec<u64> {
        let mut bytes = [0; GATEWAY_MESSAGE_BYTES_MAX];
        let receive =
            || channel::recv(theirs, &mut bytes, &mut Vec::new()).ok().map(|length| bytes[..length].to_vec());
        let messages = std::iter::from_fn(receive);
        messages.map(|message| decode::<Connect>(&message).expect("a question").link).collect()
    }

    #[test]
    fn a_gateway_that_takes_nothing_fails_the_connections() {
        let (mut gateway, _events, _theirs) = connected();
        let full = (0..).find(|link| {
            gateway.ask(Key::from_u64(*link), SERVER);
            gateway.has_failed()
        });
        let full = full.expect("a bounded channel");
        assert_eq!(kinds(gateway.take_failed()), [(full, Some(io::ErrorKind::WouldBlock))]);
    }

    #[test]
    fn the_next_gateway_is_asked_for_what_the_last_one_has_not_made() {
        let (mut gateway, mut events, theirs) = connected();
        (1..=3).for_each(|link| gateway.ask(Key::from_u64(link), SERVER));
        answer(&theirs, GatewayReply::Connected { link: 2 }, Some(&theirs));
        assert_eq!(kinds(made(gateway.receive())), [(2, None)]);
        drop(theirs);
        // One notices the end by a question, the other by the channel.
        gateway.ask(Key::from_u64(4), SERVER);
        assert!(!gateway.is_open(1) && gateway.receive().is_empty());
        gateway.ask(Key::from_u64(5), SERVER);
        for number in [2, 3] {
            let (ours, theirs) = channel::pair(BYTES).expect("a pair");
            channel::set_nonblocking(&theirs).expect("set");
            gateway.connect(&mut events, |number| number, ours);
            assert!(gateway.is_open(number));
            assert_eq!(asked(&theirs), [1, 3, 4, 5]);
            // A message that is none.
            channel::send(&theirs, &[IoSlice::new(&[7])], &[]).expect("sent");
            assert!(gateway.receive().is_empty() && !gateway.is_open(number));
        }
        assert!(!gateway.has_failed());
    }
}
