//! TLS as far as the supervisor has to do with it: the secret of session tickets, which all configurations and workers share,
//! and the files of certificates, whose changes cause a reload.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_tls::{Carried, Tickets};
use flash_waiting::changes::Look;
use flash_waiting::file;
use flash_waiting::successor::Bequest;
use flash_worker::control::Order;
use zeroize::Zeroizing;

use super::Supervisor;
use super::estate::Estate;
use super::life::State;
use super::outbox::{Outbox, Shared};
use super::poller::{Poller, Watched};
use crate::certificates::{self, Expiry};
use crate::{start, trust};

/// The interval between two looks at the files of certificates.
const LOOK_MS: u64 = 10_000;
/// The interval between two warnings of the same certificate: a day.
const WARNING_MS: u64 = 86_400_000;

/// The secret of session tickets, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct TicketSecret(Option<Tickets>);

impl TicketSecret {
    /// Leaves it to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<Option<usize>> {
        let Some(tickets) = &self.0 else { return Ok(None) };
        bequest.add(file::secret_file(&Zeroizing::new(tickets.to_bytes()))?).map(Some)
    }

    /// Takes over that of an earlier program. One of another form is replaced: clients then shake hands in full.
    pub(super) fn adopt(left: Option<usize>, estate: &mut Estate) -> io::Result<Self> {
        let Some(number) = left else { return Ok(Self::default()) };
        Ok(Self(Tickets::from_bytes(&start::secret(estate.take(number)?)?)))
    }

    /// Gives a worker everything that it needs for TLS.
    ///
    /// Errors: those of a memory file; no random bytes.
    pub(super) fn give(
        &mut self,
        orders: &mut Outbox,
        certificates: &Shared,
        listeners: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if self.0.is_none() {
            self.0 = Tickets::new();
        }
        let tickets =
            self.0.as_mut().ok_or_else(|| io::Error::other("no random bytes for session tickets"))?;
        tickets.advance();
        let secret = file::secret_file(&Zeroizing::new(tickets.to_bytes()))?;
        for listener in listeners {
            orders.give_at_start(Order::TlsListener(Arc::new(listener)))?;
        }
        orders.give_at_start(Order::Certificates(Arc::clone(certificates)))?;
        orders.give_at_start(Order::Tickets(Arc::new(secret)))
    }
}

/// The files of certificates of the configuration in force.
#[derive(Debug, Default)]
pub(super) struct CertificateWatch {
    /// The number of the configuration that has them.
    configuration: u64,
    files: Vec<PathBuf>,
    /// Their state at the last look; None before the first.
    state: Option<u64>,
    look: Option<Watched<Look>>,
    due_ms: u64,
    /// When the operator is next warned of certificates that expire.
    warning_ms: u64,
}

impl CertificateWatch {
    /// Whether this is the token of a look under way.
    pub(super) fn is(&self, token: u64) -> bool {
        self.look.as_ref().is_some_and(|look| look.token == token)
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        (!self.files.is_empty() && self.look.is_none()).then_some(self.due_ms)
    }

    fn begin(&mut self, now_ms: u64, poller: &mut Poller) {
        if self.files.is_empty() || self.look.is_some() || now_ms < self.due_ms {
            return;
        }
        self.due_ms = now_ms + LOOK_MS;
        // If this fails for lack of processes or memory, the next look sees the change.
        self.look = Look::start(&self.files).and_then(|look| poller.watch(look)).ok();
    }
}

impl Supervisor<'_> {
    /// Looks at the files of certificates when it is time. A look that hangs delays only the next one.
    pub(super) fn watch_certificates(&mut self, now_ms: u64) {
        let serving = self.generations.iter().find(|generation| generation.state == State::Serving);
        if let Some(serving) = serving
            && serving.number != self.certificates.configuration
        {
            self.certificates = CertificateWatch {
                configuration: serving.number,
                files: [certificates::files(&serving.settings), trust::files(&serving.settings)].concat(),
                ..CertificateWatch::default()
            };
        }
        if let Some(serving) = serving
            && !self.certificates.files.is_empty()
            && self.certificates.warning_ms <= now_ms
        {
            self.certificates.warning_ms = now_ms + WARNING_MS;
            let warnings = serving.expiries.iter().filter_map(Expiry::warning);
            warnings.for_each(|text| self.messages.report(&format!("warning: {text}")));
        }
        if self.stopping.is_none() {
            self.certificates.begin(now_ms, &mut self.resources.poller);
        }
    }

    /// Reads the configuration again if a file has changed since the last look.
    pub(super) fn look_at_certificates(&mut self) {
        let Some(look) = &self.certificates.look else { return };
        let state = match look.item.take() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            taken => taken.ok(),
        };
        self.certificates.look = None;
        let before = self.certificates.state;
        self.certificates.state = state.or(before);
        if before.is_some() && state.is_some() && state != before {
            self.messages.report("a file of a certificate has changed: reading the configuration again");
            self.want_reload();
        }
    }
}
