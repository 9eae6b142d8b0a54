//! The order of connections at an uplink of known rate: a token bucket, and the connections that wait for it. The
//! connection whose answer has the fewest bytes left goes first, and from time to time the one that has waited
//! longest, so that none starves. Called by the wires; it sees neither sockets nor answers.
//!
//! Only as many bytes reach the kernel as the uplink sends in a few milliseconds, so the order is decided here
//! and not in a queue of the kernel. This needs no privilege and no queueing discipline.
//!
//! Several workers share an uplink: those that use it have equal parts of its rate. The engine tells
//! [`Egress::share`] how many there are.

use std::collections::BTreeMap;

use crate::limits::{
    EGRESS_AGED_MS, EGRESS_AGED_ONE_IN, EGRESS_BURST_BYTES_MIN, EGRESS_BURST_MS, EGRESS_CONNECTION_PACKETS,
    EGRESS_GRANT_BYTES_MIN, EGRESS_PACKET_OVERHEAD_BYTES, EGRESS_PACKET_PAYLOAD_BYTES, EGRESS_RATE_PERCENT,
};
use crate::slab::Key;

/// An uplink of known rate.
#[derive(Clone, Copy, Debug)]
pub struct EgressRules {
    /// Its rate, in bytes per second, for all workers.
    pub bytes_per_s: u64,
    /// How many workers share it, until it is known how many use it.
    pub workers: u32,
}

/// The uplink, and the connections that wait for it.
#[derive(Debug)]
pub(crate) struct Egress {
    /// The rate of packets with their headers, for all workers; None if the kernel alone decides.
    bytes_per_s: Option<u64>,
    /// The workers that use the uplink now, as if this one did.
    users: u32,
    /// Bytes that may be sent now, headers included, in thousandths; negative after a send longer than its grant.
    tokens_milli: i64,
    burst_milli: i64,
    refilled_ms: u64,
    /// The waiting connections, fewest bytes left first.
    by_left: BTreeMap<(u64, Ticket), Key>,
    /// The same, longest wait first.
    by_age: BTreeMap<Ticket, Waiting>,
    tickets: u64,
    /// Grants since one went to the longest wait.
    since_aged: u32,
}

/// The place of a waiting connection. A later ticket means a later wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[derive(Clone, Copy, Debug)]
struct Waiting {
    left_bytes: u64,
    since_ms: u64,
}

impl Egress {
    /// An uplink, of which nothing is in use at first; None for no bound.
    pub(crate) fn new(rules: Option<EgressRules>, now_ms: u64) -> Self {
        let used = |rate: u64| (rate.saturating_mul(EGRESS_RATE_PERCENT) / 100).max(1);
        let mut egress = Self {
            bytes_per_s: rules.map(|rules| used(rules.bytes_per_s)),
            users: rules.map_or(1, |rules| rules.workers.max(1)),
            tokens_milli: 0,
            burst_milli: 0,
            refilled_ms: now_ms,
            by_left: BTreeMap::new(),
            by_age: BTreeMap::new(),
            tickets: 0,
            since_aged: 0,
        };
        egress.set_burst();
        egress.tokens_milli = egress.burst_milli;
        egress
    }

    /// Whether this worker uses the uplink: an answer waits, or the uplink still sends an earlier one.
    pub(crate) fn is_in_use(&mut self, now_ms: u64) -> bool {
        self.refill(now_ms);
        !self.by_left.is_empty() || self.tokens_milli < self.burst_milli
    }

    /// Takes the number of other workers that use the uplink.
    pub(crate) fn share(&mut self, others: u32, now_ms: u64) {
        let users = others.saturating_add(1);
        if users != self.users {
            self.refill(now_ms);
            // A worker that has nothing to send stays full, whatever its part.
            let is_full = self.tokens_milli == self.burst_milli;
            self.users = users;
            self.set_burst();
            self.tokens_milli =
                if is_full { self.burst_milli } else { self.tokens_milli.min(self.burst_milli) };
        }
    }

    /// This worker's part of the rate.
    fn part_bytes_per_s(&self) -> Option<u64> {
        self.bytes_per_s.map(|rate| (rate / u64::from(self.users)).max(1))
    }

    fn set_burst(&mut self) {
        let burst = self.part_bytes_per_s().unwrap_or(0).saturating_mul(EGRESS_BURST_MS) / 1_000;
        self.burst_milli = i64::try_from(burst.max(EGRESS_BURST_BYTES_MIN) * 1_000).unwrap_or(i64::MAX / 2);
    }

    /// Whether the kernel alone decides.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.bytes_per_s.is_none()
    }

    /// How many bytes an answer with `left_bytes` left may send now. None if it must wait, because the uplink
    /// is busy or another answer goes first.
    pub(crate) fn request(&mut self, left_bytes: u64, now_ms: u64) -> Option<usize> {
        if self.is_off() {
            return Some(usize::MAX);
        }
        self.refill(now_ms);
        let is_first = self.by_left.first_key_value().is_none_or(|((first, _), _)| left_bytes < *first);
        if !is_first || !self.has_room() || self.aged(now_ms).is_some() {
            return None;
        }
        self.since_aged = self.since_aged.saturating_add(1);
        Some(self.grant_bytes())
    }

    /// How many bytes the connection that [`Egress::next`] has just returned may send.
    pub(crate) fn grant_bytes(&self) -> usize {
        let room = u64::try_from(self.tokens_milli / 1_000).unwrap_or(0);
        let packet_bytes = EGRESS_PACKET_PAYLOAD_BYTES + EGRESS_PACKET_OVERHEAD_BYTES;
        usize::try_from(room * EGRESS_PACKET_PAYLOAD_BYTES / packet_bytes).unwrap_or(usize::MAX).max(1)
    }

    /// Makes a connection wait for its turn.
    pub(crate) fn wait(&mut self, key: Key, left_bytes: u64, now_ms: u64) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.by_left.insert((left_bytes, ticket), key);
        self.by_age.insert(ticket, Waiting { left_bytes, since_ms: now_ms });
        ticket
    }

    /// Removes a connection that no longer waits.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Key> {
        let waiting = self.by_age.remove(&ticket)?;
        self.by_left.remove(&(waiting.left_bytes, ticket))
    }

    /// The connection whose turn it is, if there is room. It no longer waits.
    pub(crate) fn next(&mut self, now_ms: u64) -> Option<Key> {
        if self.by_left.is_empty() {
            return None;
        }
        self.refill(now_ms);
        if !self.has_room() {
            return None;
        }
        let (_, first) = *self.by_left.first_key_value()?.0;
        let ticket = match self.aged(now_ms) {
            Some(oldest) => {
                self.since_aged = 0;
                oldest
            }
            None => {
                self.since_aged = self.since_aged.saturating_add(1);
                first
            }
        };
        self.leave(ticket)
    }

    /// Counts bytes that were sent, with the headers of their packets.
    pub(crate) fn spend(&mut self, bytes: usize) {
        if !self.is_off() {
            let packets = (bytes as u64).div_ceil(EGRESS_PACKET_PAYLOAD_BYTES);
            self.tokens_milli -= (bytes as u64 + packets * EGRESS_PACKET_OVERHEAD_BYTES) as i64 * 1_000;
        }
    }

    /// Counts the packets of a new connection that carry no payload. Some leave later and some never, so a flood of
    /// connections holds answers back for one burst at most.
    pub(crate) fn spend_connection(&mut self) {
        if !self.is_off() {
            let milli = (EGRESS_CONNECTION_PACKETS * EGRESS_PACKET_OVERHEAD_BYTES * 1_000) as i64;
            let least = self.tokens_milli.min(-self.burst_milli);
            self.tokens_milli = (self.tokens_milli - milli).max(least);
        }
    }

    /// When the next connection can send or, if none waits, when this worker no longer uses the uplink that it shares;
    /// in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let bytes_per_s = self.part_bytes_per_s()?;
        let wanted_milli = match self.by_left.is_empty() {
            false => EGRESS_GRANT_BYTES_MIN * 1_000,
            true if self.tokens_milli < self.burst_milli => self.burst_milli,
            true => return None,
        };
        // A rate of r bytes/s adds r thousandths of a byte per millisecond.
        let missing_milli = (wanted_milli - self.tokens_milli).max(0) as u64;
        Some(self.refilled_ms + missing_milli.div_ceil(bytes_per_s))
    }

    /// How many connections wait.
    pub(crate) fn waiting(&self) -> usize {
        self.by_age.len()
    }

    /// Since when the connection with the longest wait waits.
    pub(crate) fn waiting_since_ms(&self) -> Option<u64> {
        self.by_age.first_key_value().map(|(_, waiting)| waiting.since_ms)
    }

    /// Whether there is room for a packet. Smaller grants would cost a packet each.
    fn has_room(&self) -> bool {
        self.tokens_milli >= EGRESS_GRANT_BYTES_MIN * 1_000
    }

    /// The connection with the longest wait, if that is long and its share of the grants is due.
    fn aged(&self, now_ms: u64) -> Option<Ticket> {
        let (ticket, waiting) = self.by_age.first_key_value()?;
        let is_due = self.since_aged + 1 >= EGRESS_AGED_ONE_IN;
        (is_due && waiting.since_ms + EGRESS_AGED_MS <= now_ms).then_some(*ticket)
    }

    fn refill(&mut self, now_ms: u64) {
        let Some(bytes_per_s) = self.part_bytes_per_s() else { return };
        let elapsed_ms = now_ms.saturating_sub(self.refilled_ms);
        self.refilled_ms = self.refilled_ms.max(now_ms);
        let new_milli = i64::try_from(bytes_per_s.saturating_mul(elapsed_ms)).unwrap_or(i64::MAX);
        self.tokens_milli = self.tokens_milli.saturating_add(new_milli).min(self.burst_milli);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    /// 1 MB/s: 1 byte per microsecond.
    const RATE: u64 = 1_000_000 * 100 / EGRESS_RATE_PERCENT + 1;

    fn of_workers(workers: u32) -> Egress {
        Egress::new(Some(EgressRules { bytes_per_s: RATE, workers }), 0)
    }

    fn keys(count: usize) -> Vec<Key> {
        let mut slab = Slab::new();
        (0..count).map(|_| slab.insert(())).collect()
    }

    /// Sends everything that may be sent now, in order. Returns the answers that sent, with their bytes.
    fn serve(egress: &mut Egress, left: &mut [(Key, u64)], now_ms: u64) -> Vec<(usize, u64)> {
        let mut sent = Vec::new();
        while let Some(key) = egress.next(now_ms) {
            let at = left.iter().position(|(other, _)| *other == key).expect("a known connection");
            let bytes = left[at].1.min(egress.grant_bytes() as u64);
            egress.spend(bytes as usize);
            left[at].1 -= bytes;
            sent.push((at, bytes));
            if left[at].1 > 0 {
                egress.wait(key, left[at].1, now_ms);
            }
        }
        sent
    }

    #[test]
    fn without_a_rate_every_answer_is_sent_at_once() {
        let mut egress = Egress::new(None, 0);
        assert_eq!(egress.request(u64::MAX, 0), Some(usize::MAX));
        egress.spend(usize::MAX / 2_000);
        assert_eq!((egress.request(1, 0), egress.next_ms()), (Some(usize::MAX), None));
    }

    #[test]
    fn the_fewest_bytes_left_go_first() {
        let mut egress = of_workers(1);
        egress.spend(egress.grant_bytes());
        let keys = keys(3);
        let mut left = vec![(keys[0], 4_000), (keys[1], 1_500), (keys[2], 3_000)];
        for (key, bytes) in &left {
            assert_eq!(egress.request(*bytes, 0), None);
            egress.wait(*key, *bytes, 0);
        }
        let mut order: Vec<usize> = Vec::new();
        for now_ms in 1..20 {
            order.extend(serve(&mut egress, &mut left, now_ms).iter().map(|(at, _)| *at));
        }
        order.dedup();
        assert_eq!(order, [1, 2, 0]);
        assert!(left.iter().all(|(_, left)| *left == 0));
        assert_eq!(egress.waiting(), 0);
    }

    #[test]
    fn a_more_urgent_answer_passes_those_that_wait_and_others_do_not() {
        let mut egress = of_workers(1);
        let keys = keys(1);
        egress.wait(keys[0], 1_000, 0);
        assert!(egress.request(999, 0).is_some());
        assert_eq!(egress.request(1_000, 0), None);
        let ticket = egress.wait(keys[0], 2_000, 0);
        assert_eq!(egress.leave(ticket), Some(keys[0]));
        assert_eq!(egress.leave(ticket), None);
    }

    #[test]
    fn a_large_answer_does_not_starve_behind_small_ones() {
        let mut egress = of_workers(1);
        let (mut slab, mut large) = (Slab::new(), 100_000u64);
        let key = slab.insert(());
        let mut ticket_ms = 0;
        let mut longest_ms = 0;
        egress.wait(key, large, 0);
        for now_ms in 1..20_000 {
            // Twice what the uplink can send, all of it more urgent.
            for _ in 0..2 {
                egress.wait(slab.insert(()), 1_000, now_ms);
            }
            while let Some(next) = egress.next(now_ms) {
                let is_large = next == key;
                let bytes = if is_large { large.min(egress.grant_bytes() as u64) } else { 1_000 };
                egress.spend(bytes as usize);
                if is_large {
                    longest_ms = longest_ms.max(now_ms - ticket_ms);
                    large -= bytes;
                    ticket_ms = now_ms;
                    egress.wait(key, large.max(1), now_ms);
                }
            }
        }
        assert!(large < 100_000, "it was never sent");
        assert!(longest_ms < 10 * EGRESS_AGED_MS, "{longest_ms} ms without a byte");
    }

    /// Lets workers whose answers never end send for a second each time `uses` has another line: which of them have
    /// answers then. Returns the bytes of each, with headers, for each line.
    fn share_fully(uses: &[[bool; 3]]) -> Vec<[u64; 3]> {
        let mut workers = [(); 3].map(|()| of_workers(3));
        let mut announced = [false; 3];
        let mut lines = Vec::new();
        for (line, busy) in uses.iter().enumerate() {
            let mut sent = [0; 3];
            for now_ms in (line as u64 * 1_000..).take(1_000) {
                for (place, worker) in workers.iter_mut().enumerate() {
                    while busy[place]
                        && let Some(grant) = worker.request(u64::MAX, now_ms)
                    {
                        worker.spend(grant);
                        let packets = (grant as u64).div_ceil(EGRESS_PACKET_PAYLOAD_BYTES);
                        sent[place] += grant as u64 + packets * EGRESS_PACKET_OVERHEAD_BYTES;
                    }
                    announced[place] = worker.is_in_use(now_ms);
                    let others = announced.iter().zip(0..).filter(|(uses, other)| **uses && *other != place);
                    worker.share(others.count() as u32, now_ms);
                }
            }
            lines.push(sent);
        }
        lines
    }

    #[test]
    fn workers_that_use_the_uplink_have_equal_parts_of_it() {
        let uses = [[true, false, false], [true, true, false], [true, true, true], [false, false, true]];
        let lines = share_fully(&uses);
        for (busy, sent) in uses.iter().zip(&lines) {
            let part = 1_000_000 / busy.iter().filter(|busy| **busy).count() as u64;
            for (busy, bytes) in busy.iter().zip(sent) {
                let wanted = if *busy { part } else { 0 };
                assert!(bytes.abs_diff(wanted) <= wanted / 20, "{bytes} of {wanted}: {lines:?}");
            }
            assert!(sent.iter().sum::<u64>() <= 1_000_000 + 3 * 2 * EGRESS_BURST_BYTES_MIN, "{lines:?}");
        }
    }

    #[test]
    fn a_worker_that_has_sent_everything_says_so_in_time() {
        let mut egress = of_workers(2);
        assert!(!egress.is_in_use(0) && egress.next_ms().is_none());
        egress.spend(2_000);
        assert!(egress.is_in_use(0));
        let end_ms = egress.next_ms().expect("a turn in which it is full again");
        assert!(egress.is_in_use(end_ms - 1) && !egress.is_in_use(end_ms));
        assert_eq!(egress.next_ms(), None);
    }

    #[test]
    fn a_flood_of_connections_holds_answers_back_for_one_burst() {
        let mut egress = of_workers(1);
        (0..100_000).for_each(|_| egress.spend_connection());
        let burst_ms = EGRESS_BURST_BYTES_MIN / 1_000 + 1;
        assert_eq!(egress.request(1, burst_ms), None);
        assert!(egress.request(1, burst_ms + EGRESS_GRANT_BYTES_MIN as u64 / 1_000 + 1).is_some());
        egress.spend(1_000_000);
        egress.spend_connection();
        assert_eq!(egress.request(1, 900), None, "a debt of bytes stays");
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_one_burst(
            sends in prop::collection::vec((0u64..20, 1u64..50_000), 1..200),
        ) {
            let mut egress = of_workers(1);
            let burst = EGRESS_BURST_BYTES_MIN;
            // The last packet of a grant may be a short one, whose headers go beyond it.
            let beyond = EGRESS_PACKET_OVERHEAD_BYTES;
            let (mut now_ms, mut sent) = (0, 0);
            for (pause_ms, left) in sends {
                now_ms += pause_ms;
                if let Some(grant) = egress.request(left, now_ms) {
                    let bytes = left.min(grant as u64);
                    egress.spend(bytes as usize);
                    let packets = bytes.div_ceil(EGRESS_PACKET_PAYLOAD_BYTES);
                    sent += bytes + packets * EGRESS_PACKET_OVERHEAD_BYTES;
                    prop_assert!(sent <= burst + beyond + now_ms * 1_001, "{sent} bytes in {now_ms} ms");
                }
            }
        }
    }
}
