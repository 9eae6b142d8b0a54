//! Facts that events do not carry: the paths, descriptors and requests behind blocked calls.
//!
//! Events come late, so what is asked of the world may have changed since. It is certain when the call
//! was still blocked after the answer; what was asked later is marked as uncertain.

use super::thread::{Looked, Open, Received};
use super::{Analysis, Descriptors, Pending};
use crate::calls;
use crate::model::{BlockedCall, Reason, Target, TargetKind, Waiter};
use crate::world::{CURRENT_FOLDER, World};

/// Threads that are looked at in one go, at most: the others are by the next.
const LOOKS_MAX: usize = 256;

impl Analysis {
    /// Looks up what can be asked only now, and lets go of blocked calls that are complete. To be called after
    /// each portion of events, soon.
    pub(crate) fn look(&mut self, world: &mut impl World) {
        let tids: Vec<u32> = self.blocked_now.iter().copied().take(LOOKS_MAX).collect();
        for tid in tids {
            self.blocked_now.remove(&tid);
            self.look_at_blocked(tid, world);
        }
        for (tid, (one, other)) in std::mem::take(&mut self.alternating) {
            self.look_at_alternating(tid, [one, other], world);
        }
        let ids: Vec<u64> =
            self.pending.iter().filter(|(_, p)| !p.has_looked || !p.is_open).map(|(id, _)| *id).collect();
        for id in ids {
            self.look_at_ended(id, world);
            if self.pending.get(&id).is_some_and(|pending| !pending.is_open)
                && let Some(complete) = self.pending.remove(&id)
            {
                self.keep(complete);
            }
        }
        for pid in std::mem::take(&mut self.unnamed) {
            let (Some(found), Some(process)) = (world.process(pid), self.processes.get_mut(&pid)) else {
                continue;
            };
            let parent = if process.parent == 0 { found.parent } else { process.parent };
            *process = crate::model::Process { parent, ..found };
        }
    }

    /// The thread is blocked as far as is known, so that its arguments are still there.
    fn look_at_blocked(&mut self, tid: u32, world: &mut impl World) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let (pid, received) = (thread.data.pid, thread.received);
        let Some(open) = thread.open.as_mut().filter(|open| !open.is_wait && open.looked.is_none()) else {
            return;
        };
        let call = calls::call(open.call);
        let path = call.path.and_then(|at| world.path(pid, open.args[at]));
        let (fd, target) = match &path {
            Some(path) => {
                let folder = call.directory.map_or(CURRENT_FOLDER, |at| open.args[at] as i32);
                let name = absolute(pid, folder, path, world);
                (None, Some(Target { kind: TargetKind::File, name, is_uncertain: false }))
            }
            None => {
                let fd = subject(open, self.stacks.reason(open.stack_now, open.call));
                (fd, fd.and_then(|fd| world.descriptor(pid, fd)))
            }
        };
        // Without a call there is a request, too, that waits for it.
        let request =
            received.and_then(|Received { address, length, .. }| world.request(pid, address, length));
        let at_ns = world.now_ns();
        if let (Some(fd), Some(target)) = (fd, &target) {
            self.descriptors.learnt(pid, fd, target, at_ns);
        }
        open.looked = Some(Looked { at_ns, target, path, request });
    }

    /// Whether a thread serves several connections at once: it turned from one descriptor to another and back.
    fn look_at_alternating(&mut self, tid: u32, fds: [i32; 2], world: &mut impl World) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.lookups += 1;
        let pid = thread.data.pid;
        thread.has_alternated |= fds.iter().all(|fd| {
            world.descriptor(pid, *fd).is_some_and(|target| {
                target.kind == TargetKind::Socket && !target.name.starts_with("listening")
            })
        });
    }

    fn look_at_ended(&mut self, id: u64, world: &mut impl World) {
        let Some(pending) = self.pending.get_mut(&id).filter(|pending| !pending.has_looked) else { return };
        pending.has_looked = true;
        let (pid, end_ns) = (pending.call.pid, pending.end_ns);
        let descriptors = &mut self.descriptors;
        let mut find = |fd: i32, until_ns: u64| {
            if descriptors.get(pid, fd).is_none_or(|slot| slot.name.is_none()) {
                let target = world.descriptor(pid, fd)?;
                let at_ns = world.now_ns();
                descriptors.learnt(pid, fd, &target, at_ns);
            }
            descriptors.target(pid, fd, until_ns)
        };
        if let (None, Some(fd)) = (&pending.call.target, pending.call.fd) {
            // No file: the number was used again.
            let needs_file = pending.call.reason.is_disk() || pending.call.path.is_some();
            pending.call.target =
                find(fd, end_ns).filter(|target| !needs_file || target.kind == TargetKind::File);
        }
        let Some(batch) = &mut pending.call.batch else { return };
        for waiter in batch.waiters.iter_mut().filter(|waiter| waiter.target.is_none()) {
            waiter.target = find(waiter.fd, end_ns);
        }
        // A log, say, that was open before the trace: nobody is behind it.
        let is_file =
            |waiter: &Waiter| waiter.target.as_ref().is_some_and(|target| target.kind == TargetKind::File);
        batch.behind -=
            batch.waiters.iter().filter(|waiter| !waiter.arrived && is_file(waiter)).count() as u32;
        batch.waiters.retain(|waiter| !is_file(waiter));
    }

    pub(super) fn keep(&mut self, Pending { mut call, stack, .. }: Pending) {
        let Some(thread) = self.threads.get_mut(&call.tid) else { return };
        let in_loop = thread.is_loop();
        thread.data.held_up.add(&call);
        // Which of several threads is a loop may show only later.
        call.in_loop = in_loop;
        self.kept.add(call, stack, in_loop);
    }

    /// Lets go of all that there are, at the end.
    pub(super) fn release_all(&mut self, world: &mut impl World) {
        self.pending.values_mut().for_each(|pending| pending.is_open = false);
        self.look(world);
    }
}

/// The descriptor that a call was for; of two, the file when it waited for a disk.
fn subject(open: &Open, reason: Reason) -> Option<i32> {
    let call = calls::call(open.call);
    let at = match (call.fd, call.from_fd) {
        (Some(to), Some(from)) => Some(if reason == Reason::Network { to } else { from }),
        (fd, _) => fd,
    };
    // The time after a call has no arguments.
    let fd = at.filter(|_| !open.is_outside).map(|at| open.args[at] as i32);
    fd.filter(|fd| *fd >= 0)
}

/// The arguments of an ended call, with the facts that were looked up while it was blocked.
pub(super) fn arguments(call: &mut BlockedCall, open: &Open, descriptors: &Descriptors, end_ns: u64) {
    let known = calls::call(open.call);
    call.size_bytes = known.size.filter(|_| !open.is_outside).map(|at| open.args[at]);
    call.fd = subject(open, call.reason);
    if known.path.is_some() {
        call.fd = i32::try_from(call.result)
            .ok()
            .filter(|fd| *fd >= 0 && known.fd.is_none() && known.effect == calls::Effect::OpensFile);
    }
    if let Some(looked) = &open.looked {
        let is_late = looked.at_ns > end_ns;
        call.target = looked.target.clone();
        if let Some(target) = &mut call.target {
            target.is_uncertain |= is_late;
        }
        // Afterwards that memory holds another path or request, most likely.
        if !is_late {
            call.path.clone_from(&looked.path);
            call.request.clone_from(&looked.request);
        } else if known.path.is_some() {
            call.target = None;
        }
    }
    if let (None, Some(fd)) = (&call.target, call.fd.filter(|_| known.path.is_none())) {
        call.target = descriptors.target(call.pid, fd, end_ns);
    }
}

fn absolute(pid: u32, folder: i32, path: &str, world: &mut impl World) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    match world.descriptor(pid, folder) {
        Some(folder) => format!("{}/{path}", folder.name.trim_end_matches('/')),
        None => path.to_owned(),
    }
}
