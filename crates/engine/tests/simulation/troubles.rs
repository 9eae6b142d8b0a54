//! Troubles of the disk, the helpers and the clocks; and their end.

use flash_engine::SiteId;

use crate::client::Peer;
use crate::disk::{Disk, Lead};
use crate::machine::files::Residency;
use crate::plan::Health;
use crate::run::{Event, Run};

impl Run {
    /// Something happens to the disk.
    pub(crate) fn trouble(&mut self) {
        if self.over {
            return;
        }
        let in_ms = self.rng.between(1, self.plan.trouble_ms * 2);
        self.after(in_ms, Event::Trouble);
        // Trouble happens most often to a file that a client waits for.
        let place = if self.rng.chance(50) { self.asked_for() } else { None };
        let (rng, machine, disk) = (&mut self.rng, &mut self.machine, &mut self.disk);
        let kind = if place.is_some() && rng.chance(30) { 3 } else { rng.below(20) };
        let place = place.unwrap_or_else(|| rng.place(disk.named.len()));
        if disk.named[place].hot {
            return;
        }
        let there = disk.now(place).file.is_some();
        let may_go = disk.targets.iter().any(|target| matches!(target.lead, Lead::File { plain, .. } if plain == place && !target.path.ends_with('/')));
        match kind {
            0..3 if there || may_go => {
                let old = disk.now(place).file.as_ref().map(|(stat, _)| stat.size_bytes);
                let size_bytes = old.filter(|_| rng.chance(40)).unwrap_or_else(|| Disk::size(rng));
                disk.replace(machine, rng, place, size_bytes);
            }
            3..6 => disk.write(machine, rng, place),
            6 if there && may_go => disk.remove(machine, place),
            7..11 => disk.evict(machine, rng, place),
            11 | 12 => disk.forget_name(machine, place),
            13 => {
                let fails = rng.chance(50);
                disk.set_failing(machine, place, fails);
            }
            14 if there => {
                let path = disk.named[place].path.clone();
                machine.files.inode(&path).residency =
                    if rng.chance(50) { Residency::Unknown } else { Residency::All };
            }
            15 => {
                machine.files.names_thrash = rng.chance(30);
                if machine.files.names_thrash {
                    disk.named.iter_mut().for_each(|named| named.strict = false);
                }
            }
            16 => self.health = Health::random(rng),
            17 => {
                // There are no helpers for a while.
                self.helpers_away += std::mem::take(&mut machine.helpers.idle);
            }
            18 => self.bring_helpers_back(),
            _ => {}
        }
    }

    /// While a helper that has looked up a file is slow to report, the file is replaced, and other clients
    /// request it before and after the report.
    pub(crate) fn overtake(&mut self, (site, path): (SiteId, &[u8]), in_ms: u64) {
        let Some(target) = self.disk.target_of(site, path) else { return };
        let Lead::File { plain, .. } = self.disk.targets[target].lead else { return };
        if self.disk.named[plain].hot || self.disk.now(plain).file.is_none() {
            return;
        }
        let size_bytes = Disk::size(&mut self.rng);
        self.disk.replace(&mut self.machine, &mut self.rng, plain, size_bytes);
        self.after(in_ms / 3, Event::Ask(target));
        self.after(in_ms + 1, Event::Ask(target));
        // The helper can bring the file into the store before it reports.
        self.after(in_ms + 20, Event::Ask(target));
    }

    /// A file that a client waits for.
    pub(crate) fn asked_for(&mut self) -> Option<usize> {
        let asked = self.peers.iter().filter(|peer| !peer.closed && !peer.hot).filter_map(Peer::next_ask);
        let places: Vec<usize> =
            asked.filter_map(|ask| ask.target).flat_map(|target| self.disk.files_of(target)).collect();
        (!places.is_empty()).then(|| self.rng.pick(&places))
    }

    pub(crate) fn bring_helpers_back(&mut self) {
        for _ in 0..std::mem::take(&mut self.helpers_away) {
            self.after(0, Event::Helper);
        }
    }

    /// Everything outside the engine's caches leaves memory, and the disk no longer answers.
    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
        for peer in &mut self.peers {
            peer.promised_turn = None;
            peer.asks.iter_mut().for_each(|ask| ask.promised_turn = None);
        }
        for place in 0..self.disk.named.len() {
            self.disk.forget_name(&mut self.machine, place);
            if self.disk.now(place).file.is_some() {
                let path = self.disk.named[place].path.clone();
                self.machine.files.inode(&path).evict();
            }
        }
    }

    /// The clocks jump, as after a suspend or when they are set.
    pub(crate) fn jump(&mut self) {
        let rng = &mut self.rng;
        let (ms, set_ms) = match rng.below(4) {
            0 => (rng.between(1, 10 * 60_000), 0),
            1 => (8 * 3_600_000, 0),
            2 => (0, rng.between(1, 3 * 86_400_000) as i128),
            _ => (0, -(rng.between(1, 3 * 86_400_000) as i128)),
        };
        self.pass(ms);
        self.jumped_ms += ms;
        self.jumped_at_ms = self.now_ms();
        self.set_wall(self.machine.now.wall_ns + set_ms * 1_000_000);
        self.excuse_ms = self.now_ms();
    }

    /// The troubles end.
    pub(crate) fn end(&mut self) {
        self.over = true;
        self.mend_store();
        if self.plan.leave_at_once {
            for number in 0..self.peers.len() {
                let peer = &mut self.peers[number];
                if !peer.closed {
                    peer.client.reset();
                    peer.reset = true;
                }
            }
            return;
        }
        self.frozen = false;
        self.health = Health::GOOD;
        self.machine.files.names_thrash = false;
        self.disk.settle(&mut self.machine);
        for place in 0..self.disk.named.len() {
            if self.disk.named[place].failing {
                self.disk.set_failing(&mut self.machine, place, false);
            }
        }
        self.bring_helpers_back();
        // Some of the slow clients read nothing any more. The server has to close them.
        let closes_slow = self.limits.stuck_ms < u64::MAX;
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            peer.room = None;
            if !(closes_slow && peer.slow && number % 3 == 0) {
                peer.client.set_room(usize::MAX);
            }
            peer.piece_bytes = u64::MAX;
            if peer.is_idle() && !peer.closed && !peer.ended && self.rng.chance(50) {
                peer.client.end();
                peer.ended = true;
            }
        }
    }
}
