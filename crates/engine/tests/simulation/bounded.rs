//! The bounds that a rule sets for the second site in some runs: how many of its requests are answered at once, and how fast.

use std::collections::BTreeMap;
use std::net::IpAddr;

use flash_engine::limits::THROTTLE_BURST_US;
use flash_engine::{Bandwidth, Concurrency, PathRule};

use crate::ask::Ask;
use crate::client::Peer;
use crate::machine::START_MS;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::run::Run;

/// The site of the rule.
const SITE: u16 = 1;

/// The bounds of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    concurrency: Concurrency,
    bandwidth: Bandwidth,
}

/// Chooses the bounds; none for runs with many clients, whose properties are about requests that nothing refuses.
pub(crate) fn choose(rng: &mut Rng, plan: &Plan) -> Bounds {
    let mut often = |from: &[u64]| rng.chance(60).then(|| rng.pick(from));
    let concurrency = [often(&[1, 2, 5]), often(&[1, 4, 12])].map(|most| most.map(|most| most as u32));
    let bandwidth = [often(&[20_000, 200_000, 2_000_000]), often(&[50_000, 1_000_000])];
    if !rng.chance(30) || plan.crowd + plan.rush + plan.hoard > 0 {
        return Bounds::default();
    }
    Bounds {
        concurrency: Concurrency { of_client: concurrency[0], of_all: concurrency[1] },
        bandwidth: Bandwidth { of_client: bandwidth[0], of_all: bandwidth[1] },
    }
}

impl Bounds {
    /// The rule for this site, if there is one.
    pub(crate) fn rule(self, site: usize) -> Option<PathRule> {
        let Self { concurrency, bandwidth } = self;
        (site == usize::from(SITE)).then(|| PathRule { concurrency, bandwidth, ..PathRule::new("/*") })
    }
}

/// The number of unanswered requests for the site, in all and for each client.
#[derive(Debug, Default)]
struct Unanswered {
    of_all: u32,
    of_client: BTreeMap<IpAddr, u32>,
}

impl Unanswered {
    fn add(&mut self, client: IpAddr, count: usize) {
        self.of_all += count as u32;
        *self.of_client.entry(client).or_default() += count as u32;
    }

    fn of(&self, client: IpAddr) -> Beside {
        Beside { of_client: self.of_client.get(&client).copied().unwrap_or(0), of_all: self.of_all }
    }
}

/// The most requests for the site that were unanswered at once while a request waited, itself included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    of_client: u32,
    of_all: u32,
}

impl Beside {
    /// Whether an answer of this status may refuse the request for a site, because the rule admits no more.
    pub(crate) fn may_refuse(self, bounds: Bounds, site: u16, status: u16) -> bool {
        let (most, count) = match status {
            429 => (bounds.concurrency.of_client, self.of_client),
            503 => (bounds.concurrency.of_all, self.of_all),
            _ => return false,
        };
        site == SITE && most.is_some_and(|most| count > most)
    }
}

impl Run {
    /// Whether the rule is for this request.
    pub(crate) fn is_bounded(&self, ask: &Ask) -> bool {
        self.plan.bounds != Bounds::default()
            && !ask.astray
            && ask.target.is_some_and(|target| self.disk.targets[target].site == SITE)
    }

    /// Counts the requests that the engine can have before it as a turn begins. A client that does not read gets an answer
    /// many turns after it was made, so each request keeps the highest count.
    pub(crate) fn count_unanswered(&mut self) {
        let mut unanswered = Unanswered::default();
        for peer in self.peers.iter().filter(|peer| !peer.closed) {
            let asks = peer.asks.iter().filter(|ask| ask.first_ms != u64::MAX && self.is_bounded(ask));
            unanswered.add(peer.address, asks.count());
        }
        for peer in self.peers.iter_mut().filter(|peer| !peer.closed) {
            let now = unanswered.of(peer.address);
            for ask in peer.asks.iter_mut().filter(|ask| ask.first_ms != u64::MAX) {
                ask.beside.of_client = ask.beside.of_client.max(now.of_client);
                ask.beside.of_all = ask.beside.of_all.max(now.of_all);
            }
        }
    }

    /// Counts the bytes of files that a client has received.
    pub(crate) fn note_bytes(&mut self, peer: &mut Peer) {
        for (target, bytes) in std::mem::take(&mut peer.file_bytes) {
            if self.disk.targets[target].site == SITE {
                *self.bounded_bytes.entry(peer.address).or_default() += bytes;
            }
        }
    }

    /// Checks that no more files are on their way than the rule admits, and no more bytes were sent.
    pub(crate) fn check_bounds(&self) {
        let Bounds { concurrency, bandwidth } = self.plan.bounds;
        let mut under_way = Unanswered::default();
        // To the server, an answer has ended when all of it is encrypted.
        let plain = self.peers.iter().filter(|peer| !peer.closed && peer.client.wire().encrypted().is_none());
        for peer in plain {
            let files = peer.places_in_files();
            let of_site = files.filter(|(target, _)| self.disk.targets[*target].site == SITE);
            under_way.add(peer.address, of_site.count());
        }
        let of_client = under_way.of_client.values().copied().max().unwrap_or(0);
        for (count, most) in [(of_client, concurrency.of_client), (under_way.of_all, concurrency.of_all)] {
            self.require(most.is_none_or(|most| count <= most), "concurrency", || {
                format!("{count} answers are under way, although the rule admits {most:?}")
            });
        }
        let us = (self.now_ms() - START_MS) * 1_000 + THROTTLE_BURST_US;
        let of_client = self.bounded_bytes.values().copied().max().unwrap_or(0);
        let of_all = self.bounded_bytes.values().sum();
        for (bytes, rate) in [(of_client, bandwidth.of_client), (of_all, bandwidth.of_all)] {
            self.require(rate.is_none_or(|rate| bytes <= rate * us / 1_000_000), "bandwidth", || {
                format!("{bytes} bytes were sent within {us} us, although the rule admits {rate:?} a second")
            });
        }
    }
}
