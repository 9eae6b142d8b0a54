//! Messages of the backend's clients: who may send them, and which jobs they ask for. Called by the worker's loop.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::clients::Welcomed;
use super::protocol::{Range, Reply, Request, Status};
use super::{Backend, ClientFile, EINVAL, HELD_MAX, HELD_MS, Refusal};
use crate::jobs::{JobKey, NoRoom, Urgency, Wanted};
use crate::machine::{FileKind, Task};
use crate::slab::Key;

impl<F> Backend<F> {
    /// Handles a message, with the file that came as its descriptor.
    pub fn handle_message(
        &mut self,
        client: Key,
        request: Request<'_>,
        file: Option<ClientFile<F>>,
    ) -> ControlFlow<()> {
        let is_welcome = self.clients.welcomed(client).is_some();
        match (request, file) {
            (Request::Hello { waiters_max, group, name }, Some(root))
                if !is_welcome && root.kind == FileKind::Directory =>
            {
                let status = self.clients.welcome(client, (group, name), waiters_max, root);
                self.greet(client, status)
            }
            (Request::OtherVersion, _) if !is_welcome => self.greet(client, Status::OtherVersion),
            (Request::WarmName { id, deadline_ms, path }, None) if is_welcome => {
                self.counters.names += 1;
                self.warm_name(client, (id, deadline_ms), path)
            }
            (Request::WarmRange { id, deadline_ms, range }, Some(file)) if is_welcome => {
                self.counters.ranges += 1;
                self.warm_range(client, (id, deadline_ms), range, file)
            }
            (Request::Close, Some(file)) if is_welcome => {
                self.counters.closes += 1;
                self.hold(file.file);
                ControlFlow::Continue(())
            }
            (Request::Cancel { id }, None) if is_welcome => {
                self.counters.cancels += 1;
                if let Some(request) = self.clients.forget(client, id) {
                    self.withdraw(request);
                }
                ControlFlow::Continue(())
            }
            _ => {
                self.note_malformed();
                ControlFlow::Break(())
            }
        }
    }

    /// Handles a message whose descriptor was lost, because this process has too many open.
    pub fn handle_cut_message(&mut self, client: Key, request: Request<'_>) -> ControlFlow<()> {
        let is_welcome = self.clients.welcomed(client).is_some();
        match request {
            Request::WarmRange { id, .. } if is_welcome && !self.clients.knows(client, id) => {
                self.counters.ranges += 1;
                self.refuse(client, id, Refusal::Bounds);
                ControlFlow::Continue(())
            }
            // The kernel has closed the file.
            Request::Close if is_welcome => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Holds a file back until its client has closed its own descriptor, so that the last close is here.
    fn hold(&mut self, file: F) {
        if self.held.len() >= HELD_MAX {
            self.held.pop_front();
        }
        self.held.push_back((self.now_ms.saturating_add(HELD_MS), file));
    }

    /// Counts a message that does not follow the protocol.
    pub fn note_malformed(&mut self) {
        self.counters.malformed += 1;
    }

    fn greet(&mut self, client: Key, status: Status) -> ControlFlow<()> {
        self.replies.push_back((client, Reply::Hello(status)));
        if status == Status::Welcome {
            return ControlFlow::Continue(());
        }
        self.counters.refused += 1;
        ControlFlow::Break(())
    }

    fn warm_name(&mut self, client: Key, (id, deadline_ms): (u32, u32), path: &[u8]) -> ControlFlow<()> {
        let Some(Welcomed { user, root, root_id, .. }) = self.clients.welcomed(client) else {
            return ControlFlow::Break(());
        };
        let (user, root, root_id) = (*user, Arc::clone(root), *root_id);
        let device = self.file_systems.device_of(root_id, path);
        let share = self.share_of(device);
        let wanted = Wanted {
            key: JobKey::Touch(share, user, root_id, path.into()),
            task: Task::Touch { root, path: path.into() },
            urgency: Urgency::Bounded,
            subject: None,
            remaining_bytes: 0,
        };
        self.ask(client, (id, deadline_ms), wanted)
    }

    fn warm_range(
        &mut self,
        client: Key,
        (id, deadline_ms): (u32, u32),
        range: Range,
        file: ClientFile<F>,
    ) -> ControlFlow<()> {
        let Some(user) = self.clients.welcomed(client).map(|welcomed| welcomed.user) else {
            return ControlFlow::Break(());
        };
        let Range { offset, length_bytes, remaining_bytes } = range;
        // Offsets of files are signed. Only regular files have pages in memory; a read of another could have
        // an effect, or never end.
        let ends_in_file = offset.checked_add(length_bytes).is_some_and(|end| i64::try_from(end).is_ok());
        if file.kind != FileKind::Regular || !ends_in_file {
            if self.clients.knows(client, id) {
                return ControlFlow::Break(());
            }
            self.counters.errors += 1;
            self.replies.push_back((client, Reply::Errno { id, number: EINVAL }));
            return ControlFlow::Continue(());
        }
        let share = self.share_of(file.id.device);
        if self.file_systems.is_jammed(share) && !self.clients.knows(client, id) {
            self.refuse(client, id, Refusal::Bounds);
            return ControlFlow::Continue(());
        }
        let wanted = Wanted {
            key: JobKey::Range(share, user, file.id, offset, length_bytes),
            task: Task::Load { file: Arc::new(file.file), offset, length_bytes },
            urgency: Urgency::Bounded,
            subject: None,
            remaining_bytes,
        };
        self.ask(client, (id, deadline_ms), wanted)
    }

    /// Submits the job of a request.
    pub(super) fn ask(
        &mut self,
        client: Key,
        (id, deadline_ms): (u32, u32),
        wanted: Wanted<F, ()>,
    ) -> ControlFlow<()> {
        if self.clients.knows(client, id) {
            self.note_malformed();
            return ControlFlow::Break(());
        }
        if let Err(refusal) = self.submit(client, (id, deadline_ms), wanted) {
            self.refuse(client, id, refusal);
        }
        ControlFlow::Continue(())
    }

    fn refuse(&mut self, client: Key, id: u32, refusal: Refusal) {
        let wait_ms = match refusal {
            Refusal::Bounds => {
                self.counters.busy_bounds += 1;
                None
            }
            Refusal::Quota => {
                self.counters.busy_quota += 1;
                None
            }
            // Jobs count these themselves.
            Refusal::Queue(NoRoom { wait_ms }) => wait_ms,
        };
        let retry_after_ms = u32::try_from(wait_ms.unwrap_or(0)).unwrap_or(u32::MAX);
        self.replies.push_back((client, Reply::Busy { id, retry_after_ms }));
    }
}
