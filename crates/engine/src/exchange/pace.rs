//! The pace of an answer for which rules bound the bandwidth: it takes bytes from one throttle after another, and waits where there are
//! none. Called by the wires and by [`relay`](super::relay).

use std::sync::Arc;

use crate::bandwidth::Throttle;
use crate::context::{Context, Core};
use crate::in_flight::Holds;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::throttles::{QueuePlace, put_back};

/// The pace of an answer.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The bounds that rules set for the request.
    holds: Option<Arc<Holds>>,
    /// Bytes that it has taken, or is taking, and not sent.
    bytes: u64,
    /// The number of throttles that it has taken them from.
    passed: usize,
    /// Its place in the queue of the next throttle.
    place: Option<QueuePlace>,
}

impl Pace {
    pub(crate) fn of(holds: Option<Arc<Holds>>) -> Self {
        Self { holds, bytes: 0, passed: 0, place: None }
    }

    /// Whether there is a throttle.
    #[inline]
    pub(crate) fn is_throttled(&self) -> bool {
        !self.throttles().is_empty()
    }

    #[inline]
    fn throttles(&self) -> &[Throttle] {
        Holds::throttles(self.holds.as_ref())
    }

    /// Takes the bounds of the request, for another part of its exchange.
    pub(crate) fn take_holds(&mut self) -> Option<Arc<Holds>> {
        self.holds.take()
    }

    /// How many bytes an exchange may send now, of an answer with this many left. None if it has to wait; it is woken then.
    #[inline]
    pub(crate) fn request<M: Machine>(
        &mut self,
        context: &mut Context<'_, M>,
        exchange: ExchangeKey,
        left_bytes: u64,
    ) -> Option<usize> {
        if !self.is_throttled() || left_bytes == 0 {
            Some(usize::MAX)
        } else {
            self.take(context, exchange, left_bytes)
        }
    }

    fn take<M: Machine>(
        &mut self,
        context: &mut Context<'_, M>,
        exchange: ExchangeKey,
        left_bytes: u64,
    ) -> Option<usize> {
        if self.is_waiting(context.core) {
            return None;
        }
        if self.place.take().is_some() {
            self.passed += 1;
        } else if self.bytes == 0 {
            self.bytes = self.throttles().iter().map(Throttle::grant_bytes).fold(left_bytes, u64::min);
            self.passed = 0;
        }
        let now_us = context.core.clock.us();
        while let Some(throttle) = self.throttles().get(self.passed).copied() {
            let wanted = (exchange, self.bytes);
            if let Err(place) = context.core.throttles.take(context.machine, throttle, wanted, now_us) {
                self.place = Some(place);
                return None;
            }
            self.passed += 1;
        }
        usize::try_from(self.bytes).ok()
    }

    /// Whether it waits for bytes.
    pub(crate) fn is_waiting<F>(&self, core: &Core<F>) -> bool {
        let next = self.place.zip(self.throttles().get(self.passed));
        next.is_some_and(|(place, throttle)| core.throttles.is_waiting(throttle, place))
    }

    /// Counts bytes that were sent.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// Puts back what it has taken, because nothing more is sent.
    pub(crate) fn leave<M: Machine>(&mut self, context: &mut Context<'_, M>) {
        if let Some(place) = self.place.take()
            && let Some(throttle) = self.throttles().get(self.passed)
            && !context.core.throttles.leave(throttle, place)
        {
            self.passed += 1;
        }
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.throttles()
                .iter()
                .take(self.passed)
                .for_each(|throttle| put_back(context.machine, throttle, bytes));
        }
    }
}
