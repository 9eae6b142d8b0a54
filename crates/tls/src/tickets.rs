//! The keys of session tickets (RFC 8446, section 4.6.1; RFC 5077). The supervisor makes a secret, and every worker gets it
//! at its start. Each period has a secret made from the previous one, which is then forgotten: so all workers have the same
//! keys at any time without a message, and a stolen secret opens no ticket of an earlier period.

use std::fmt;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hmac, rand};
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::carried::Carried;

/// How long a key encrypts new tickets. It decrypts them for one more period.
const PERIOD_S: u64 = 12 * 3600;
/// The number of the period is the first part of a ticket.
const NUMBER_BYTES: usize = 8;
/// Periods after which the secret is not carried on, if the clock jumps.
const PERIODS_MAX: u64 = 100_000;

/// The secret of one period.
#[derive(Clone, Serialize, Deserialize)]
pub struct Tickets {
    period: u64,
    secret: [u8; 32],
}

impl Drop for Tickets {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets of period {}", self.period)
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Carried for Tickets {}

impl Tickets {
    /// A new secret. None if the kernel has no random bytes.
    #[must_use]
    pub fn new() -> Option<Self> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).ok()?;
        Some(Self { period: now_s() / PERIOD_S, secret })
    }

    /// Moves to the period of this time, and forgets those before.
    pub fn advance(&mut self) {
        self.advance_to(now_s());
    }

    fn advance_to(&mut self, now_s: u64) {
        let now = now_s / PERIOD_S;
        while self.period < now && now - self.period < PERIODS_MAX {
            self.secret = self.derive(b"next");
            self.period += 1;
        }
    }

    fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let mut derived = [0; 32];
        derived.copy_from_slice(hmac::sign(&key, purpose).as_ref());
        derived
    }

    fn key(&self) -> Option<TicketKey> {
        let mut bytes = self.derive(b"ticket");
        let key = UnboundKey::new(&AES_256_GCM, &bytes).ok().map(LessSafeKey::new);
        bytes.zeroize();
        Some(TicketKey { period: self.period, key: key? })
    }
}

/// The key of one period.
#[derive(Debug)]
struct TicketKey {
    period: u64,
    key: LessSafeKey,
}

/// The tickets of a worker.
#[derive(Debug)]
pub(crate) struct Ticketer(Mutex<Keys>);

#[derive(Debug)]
struct Keys {
    tickets: Tickets,
    present: TicketKey,
    previous: Option<TicketKey>,
}

impl Ticketer {
    /// None if the cryptography fails.
    pub(crate) fn new(tickets: Tickets) -> Option<Self> {
        let present = tickets.key()?;
        Some(Self(Mutex::new(Keys { tickets, present, previous: None })))
    }

    fn encrypt_at(&self, plain: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let mut keys = self.0.lock().ok()?;
        keys.follow(now_s);
        let TicketKey { period, key } = &keys.present;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let number = period.to_be_bytes();
        let mut sealed = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce_used, Aad::from(&number), &mut sealed).ok()?;
        Some([&number[..], &nonce, &sealed].concat())
    }

    fn decrypt_at(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let mut keys = self.0.lock().ok()?;
        keys.follow(now_s);
        let (number, rest) = ticket.split_first_chunk::<NUMBER_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*number);
        let known = [Some(&keys.present), keys.previous.as_ref()];
        let TicketKey { key, .. } = known.into_iter().flatten().find(|key| key.period == period)?;
        let mut plain = sealed.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(number), &mut plain);
        let length = opened.ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

impl Keys {
    fn follow(&mut self, now_s: u64) {
        let now = now_s / PERIOD_S;
        if now <= self.present.period {
            return;
        }
        // The key of the previous period, which this one may have skipped.
        self.tickets.advance_to((now - 1) * PERIOD_S);
        self.previous = self.tickets.key();
        self.tickets.advance_to(now_s);
        if let Some(present) = self.tickets.key() {
            self.present = present;
        }
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, now_s())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, now_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(period: u64) -> u64 {
        period * PERIOD_S + 5
    }

    fn workers(period: u64) -> [Ticketer; 2] {
        let tickets = Tickets { period, secret: [7; 32] };
        let copy = Tickets::from_bytes(&tickets.to_bytes()).expect("tickets");
        [tickets, copy].map(|tickets| Ticketer::new(tickets).expect("a ticketer"))
    }

    #[test]
    fn every_worker_reads_the_tickets_of_all() {
        let [one, other] = workers(100);
        for period in [100, 101, 105] {
            let ticket = one.encrypt_at(b"a session", at(period)).expect("a ticket");
            assert_eq!(other.decrypt_at(&ticket, at(period)).as_deref(), Some(&b"a session"[..]));
        }
        // A worker that starts later gets the secret of its time.
        let mut later = Tickets { period: 100, secret: [7; 32] };
        later.advance_to(at(105));
        let later = Ticketer::new(later).expect("a ticketer");
        let ticket = one.encrypt_at(b"x", at(105)).expect("a ticket");
        assert!(later.decrypt_at(&ticket, at(105)).is_some());
    }

    #[test]
    fn a_ticket_is_good_for_two_periods() {
        let [one, other] = workers(100);
        let ticket = one.encrypt_at(b"x", at(100)).expect("a ticket");
        assert!(other.decrypt_at(&ticket, at(101)).is_some());
        assert!(other.decrypt_at(&ticket, at(102)).is_none());
    }

    #[test]
    fn anything_else_is_no_ticket() {
        let [one, _] = workers(100);
        let ticket = one.encrypt_at(b"a session", at(100)).expect("a ticket");
        for cut in 0..ticket.len() {
            assert!(one.decrypt_at(&ticket[..cut], at(100)).is_none());
        }
        for place in 0..ticket.len() {
            let mut wrong = ticket.clone();
            wrong[place] ^= 1;
            assert!(one.decrypt_at(&wrong, at(100)).is_none());
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let tickets = Tickets { period: 1, secret: [77; 32] };
        assert!(!format!("{tickets:?}").contains("77"));
    }
}
